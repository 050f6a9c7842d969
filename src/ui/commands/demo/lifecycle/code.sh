#!/bin/sh
echo 'exec wc -w' > code/count.sh
echo '{"code": {"status": "completed", "files": ["code/count.sh"]}}'
