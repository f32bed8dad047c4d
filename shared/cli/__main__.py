"""python -m shared.cli"""

from shared.cli import main

main()
