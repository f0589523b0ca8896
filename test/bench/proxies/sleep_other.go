//go:build !linux

package main

import "time"

// sleep sleeps for d, or up to a millisecond longer.
func sleep(d time.Duration) { <-time.NewTimer(d).C }
