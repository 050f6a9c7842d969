#!/bin/sh
# Stands in for an agent: it gets the request and every answer before it.
answers=$(grep -c '^--- answer of' /dev/stdin)
echo "Reviewed $answers answers: looks right, ship it."
