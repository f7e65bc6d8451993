"""`python3 dev.py simulate`: as `kraftlib simulate`, and three things that judge kraftlib itself.

program      every second seed is held against the rules of the protocol (`tools.rules`)
core         the profiles `core` and `core-...` run schedules of the core alone (`tools.core_fuzz`)
scenarios    `--scenario` tells stories of one fault each (`tools.scenarios`)
"""
