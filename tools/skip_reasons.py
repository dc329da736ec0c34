#!/usr/bin/env python3
"""Print each skipped test of a ctest report with the reason that it gave.

usage: skip_reasons.py REPORT.xml     (ctest --output-junit)
"""
import sys, xml.etree.ElementTree as xml

for case in xml.parse(sys.argv[1]).iter("testcase"):
    skipped = case.find("skipped")
    if skipped is not None and skipped.get("message", "").startswith("SKIP_RETURN_CODE"):
        said = (case.findtext("system-out") or "").strip() or "no reason given"
        print(f"  {case.get('name')}: {said.splitlines()[-1].removeprefix('skipped: ')}")
