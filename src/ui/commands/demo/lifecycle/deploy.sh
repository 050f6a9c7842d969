#!/bin/sh
cp code/count.sh deployment/count
echo 'Copied to deployment/count.' > deployment/report.md
echo '{"deployment": {"status": "completed", "report": "deployment/report.md"}}'
