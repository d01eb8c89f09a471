"""The demo: three networks trained, evaluated and explained on generated scenes."""
