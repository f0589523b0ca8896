package limiter_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"1ms": time.Millisecond, "50ms": 50 * time.Millisecond, "5s": 5 * time.Second, "1m": time.Minute, "90m": 90 * time.Minute, "1h30m": 90 * time.Minute,
		"1d": day, "2w": 14 * day, "366d": 366 * day, "1w1d1h1m1s1ms": 8*day + time.Hour + time.Minute + time.Second + time.Millisecond,
		"0s": 0, "007s": 7 * time.Second, "9223372036854ms": 9223372036854 * time.Millisecond, "106751d": 106751 * day,
	} {
		if got, err := limiter.ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: %v %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "0", "5", "s", "5 s", " 5s", "5s ", "-5s", "+5s", "1.5s", "1e3s", "5S", "5sec", "5us", "5µs", "5ns", "1y", "1y1d", "1M",
		"1m1d", "1m1h", "1s1s", "1ms1s", "5s5", "5ss", "٥s", "9223372036855ms", "106752d", "106751d24h", "15251w", "99999999999999999999s",
	} {
		if got, err := limiter.ParseDuration(text); !errors.Is(err, limiter.ErrInvalidDuration) || got != 0 {
			t.Errorf("%q: %v %v; want ErrDuration", text, got, err)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0: "0s", time.Microsecond: "0s", time.Millisecond: "1ms", 1999 * time.Microsecond: "1ms", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour + time.Second: "1h1s",
		day: "1d", 7 * day: "1w", 8 * day: "8d", 14 * day: "2w", 7*day + time.Hour: "7d1h", 365 * day: "365d", 364 * day: "52w", -time.Second: "0s",
		math.MaxInt64: "106751d23h47m16s854ms",
	} {
		if got := limiter.FormatDuration(d); got != want {
			t.Errorf("%v: %q; want %q", time.Duration(d), got, want)
		}
	}
}

// What FormatDuration writes, ParseDuration reads.
func FuzzDuration(f *testing.F) {
	for _, s := range []string{"1w", "8d", "1h30m", "1s500ms", "1y", "0s", "106751d24h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := limiter.ParseDuration(s)
		if err != nil {
			return
		}
		if again, err := limiter.ParseDuration(limiter.FormatDuration(d)); err != nil || again != d {
			t.Fatalf("%q is %v, which is written %q and read as %v (%v)", s, d, limiter.FormatDuration(d), again, err)
		}
	})
}
