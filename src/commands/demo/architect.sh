#!/bin/sh
# Stands in for an agent: reads the prompt, prints an answer.
read -r request
case $request in
slow:*)
    echo "thinking about ${request#slow: }"
    : > started
    while [ ! -e hurry ]; do sleep 0.05; done
    echo "done thinking"
    ;;
*)
    echo "Plan for $request:"
    echo "1. read standard input"
    echo "2. print the number of words"
    ;;
esac
