"""python -m shared.scaler"""

from shared.scaler.scaler import main

main()
