from hwtune.cli import main

main()
