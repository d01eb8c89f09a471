"""The first five minutes: three networks trained, judged and explained on generated scenes."""

from scaseg.demo.run import run_demo as run_demo
