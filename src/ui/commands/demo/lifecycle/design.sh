#!/bin/sh
echo 'Words are what is between spaces.' > design/design.md
echo '{"design": {"status": "approved", "file": "design/design.md"}}'
