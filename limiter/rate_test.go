package limiter_test

import (
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

func TestParseRate(t *testing.T) {
	for in, want := range map[string]limiter.Rate{
		"1/60s":           {Count: 1, Window: time.Minute},
		" 5/1h ":          {Count: 5, Window: time.Hour},
		"100/10s":         {Count: 100, Window: 10 * time.Second},
		"10/1d":           {Count: 10, Window: 24 * time.Hour},
		"20/1h30m":        {Count: 20, Window: 90 * time.Minute},
		"3/2w":            {Count: 3, Window: 14 * 24 * time.Hour},
		"10/s":            {Count: 10, Window: time.Second},
		"100/m":           {Count: 100, Window: time.Minute},
		"10 per minute":   {Count: 10, Window: time.Minute},
		"1 per Week":      {Count: 1, Window: 7 * 24 * time.Hour},
		" 7  per  hour ":  {Count: 7, Window: time.Hour},
		"1/1ms":           {Count: 1, Window: time.Millisecond},
		"2147483647/366d": {Count: limiter.MaxCount, Window: limiter.MaxWindow},
	} {
		got, err := limiter.ParseRate(in)
		if err != nil || got != want {
			t.Errorf("%q: %v %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "5", "/", "5/", "/1m", "5/", "5/60", "10 per", "10 per m", "10 per 5 minutes", "10/1 per minute", "-1/1m", "+1/1m", "0/1m", "1.5/1m", "x/1m", "5/1x", "5/0s", "5/-1s",
		"1/367d", "2147483648/1m", "1e3/1m", "5 / 1m", "5/1m/1h", "1/1y",
	} {
		if got, err := limiter.ParseRate(in); !errors.Is(err, limiter.ErrInvalidRate) {
			t.Errorf("%q: %v %v, want ErrRate", in, got, err)
		}
	}
}

// What String writes, ParseRate reads, and equal rates look the same.
func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"1/60s", "5/1h", "20/1h30m", "3/2w", "1/1ms", "x", "1/365d", "9/90061001ms"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := limiter.ParseRate(s)
		if err != nil {
			if !errors.Is(err, limiter.ErrInvalidRate) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		again, err := limiter.ParseRate(r.String())
		if err != nil || again != r {
			t.Fatalf("%q is %v, which reads as %v (%v)", s, r, again, err)
		}
	})
}

func TestWindowName(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", 90 * time.Minute: "1h30m", 24 * time.Hour: "1d", 1500 * time.Millisecond: "1s500ms", 7 * 24 * time.Hour: "1w",
	} {
		if got := limiter.WindowName(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// What is advised can be written.
func TestParseRate_AdviceIsARate(t *testing.T) {
	example := regexp.MustCompile(`for example (.*)$`)
	for text, want := range map[string]string{
		"5r/s": "5/1s", "5/minute": "5/1m", "100/Hours": "100/1h", "10 per fortnight": "10/1m", "5": "5/1m", "5r": "5/1m", "": "5/1m", "per second": "5/1m",
		"100 requests/h": "100/1h", "five/m": "5/1m", "five/minute": "5/1m",
	} {
		_, err := limiter.ParseRate(text)
		found := []string{"", ""}
		if err != nil {
			found = example.FindStringSubmatch(err.Error())
		}
		if len(found) != 2 || found[1] != want {
			t.Errorf("%q: %v; want the advice %s", text, err, want)
			continue
		}
		if _, err := limiter.ParseRate(found[1]); err != nil {
			t.Errorf("%q: the advice %s is no rate itself: %v", text, found[1], err)
		}
	}
}
