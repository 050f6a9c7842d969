#!/bin/sh
# An honest architect: a blueprint, a diagram, and what it says of them.
echo 'One command: it reads, it counts, it prints.' > architecture/blueprint.md
echo 'stdin --> count --> stdout' > architecture/parts.md
echo '{"architecture": {"blueprint": {"approved": true}, "diagrams": [{"file": "architecture/parts.md", "approved": true}]}}'
