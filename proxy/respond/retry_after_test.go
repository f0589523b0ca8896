package respond

import (
	"math"
	"testing"
	"time"
)

// Whoever is told to come back is told no more than a tenth later, and never more
// than half a minute, in whole seconds.
func TestJitter_IsBounded(t *testing.T) {
	nearlyOne := math.Nextafter(1, 0)
	for wait, most := range map[time.Duration]time.Duration{
		0:                        0,
		time.Second:              0,
		9999 * time.Millisecond:  0,
		10 * time.Second:         time.Second,
		59300 * time.Millisecond: 5 * time.Second,
		time.Minute:              6 * time.Second,
		299 * time.Second:        29 * time.Second,
		time.Hour:                30 * time.Second,
		30 * 24 * time.Hour:      30 * time.Second,
	} {
		luck := func(n float64) func() float64 { return func() float64 { return n } }
		if got := Jitter(wait, luck(nearlyOne)); got != most {
			t.Errorf("jitter of %v is at most %v; want %v", wait, got, most)
		}
		if got := Jitter(wait, luck(0)); got != 0 {
			t.Errorf("jitter of %v is at least %v; want none", wait, got)
		}
		if got := Jitter(wait, luck(0.5)); got < 0 || got > most {
			t.Errorf("jitter of %v is %v; want at most %v", wait, got, most)
		}
	}
}
