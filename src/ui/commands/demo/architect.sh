#!/bin/sh
# Stands in for an agent: reads the prompt, prints an answer, and writes a file where it is told to.
read -r request
case $request in
slow:*)
    echo "thinking about ${request#slow: }"
    : > started
    while [ ! -e hurry ]; do sleep 0.05; done
    echo "done thinking"
    ;;
Design*)
    file=$(grep '/system_design.md$' /dev/stdin)
    printf '# Counting words\n\n1. read standard input\n2. print the number of words\n' > "$file"
    echo "The design is written."
    ;;
*)
    echo "Plan for $request:"
    echo "1. read standard input"
    echo "2. print the number of words"
    ;;
esac
