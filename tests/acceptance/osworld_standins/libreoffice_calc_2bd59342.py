"""Sparklines of a kind that Calc does not have: the task is infeasible."""

from tests.acceptance.osworld_standins.made import DONE, FAIL, keys, spreadsheet, turn

TASK = "2bd59342-0664-4ccb-ba87-79379096cc08"
FILES = {"OrderId_Month_Chart.xlsx": spreadsheet([["Order Id", "Jan", "Feb", "Mar"], [1, 5, 7, 2], [2, 3, 9, 4]])}
RIGHT = [FAIL]
NEAR_MISS = [turn("I look at the end of the sheet.", keys("ctrl", "end")), DONE]
NEAR_MISS_IS = "says that it is done"
SHELL = False
