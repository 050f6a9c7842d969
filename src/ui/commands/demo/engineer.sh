#!/bin/sh
# Stands in for an agent: it gets the request and the plan, or the path of a design.
prompt=$(cat)
design=$(printf '%s\n' "$prompt" | sed -n 's/^- //p' | head -n 1)
[ -z "$design" ] || prompt=$(cat "$design")
steps=$(printf '%s\n' "$prompt" | grep -c '^[0-9]\.')
echo "Written to the $steps steps of ${design:-the plan}:"
echo "awk '{ n += NF } END { print n + 0 }'"
