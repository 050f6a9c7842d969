#!/bin/sh
# Stands in for an agent: it gets the request and the plan.
steps=$(grep -c '^[0-9]\.' /dev/stdin)
echo "Written to the $steps steps of the plan:"
echo "awk '{ n += NF } END { print n + 0 }'"
