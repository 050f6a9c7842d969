#!/bin/sh
count=$(echo 'one two three' | sh code/count.sh)
echo "three words are counted as $count" > tests/report.txt
[ "$count" -eq 3 ] && status=passed || status=failed
echo "{\"tests\": {\"status\": \"$status\", \"report\": \"tests/report.txt\"}}"
