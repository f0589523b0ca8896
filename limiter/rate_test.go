package limiter_test

import (
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/filetest"
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

func TestParseAlgorithm(t *testing.T) {
	for a := limiter.TokenBucket; a <= limiter.SlidingLog; a++ {
		if got, err := limiter.ParseAlgorithm(a.String()); got != a || err != nil {
			t.Errorf("%s: %v %v", a, got, err)
		}
	}
	for _, bad := range []string{"", "leaky", "GCRA", "algorithm 8"} {
		if _, err := limiter.ParseAlgorithm(bad); err == nil || !strings.Contains(err.Error(), "write token_bucket") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Every algorithm has a name that is parsed back and a sign of its own in Redis, which
// never changes: keys would be lost. What is unknown has no traits.
func TestAlgorithm_Traits(t *testing.T) {
	signs := ""
	for a := range limiter.NumAlgorithms {
		if got, err := limiter.ParseAlgorithm(a.String()); err != nil || got != a {
			t.Errorf("ParseAlgorithm(%q) = %v, %v", a.String(), got, err)
		}
		signs += string(a.Sign())
	}
	if want := "012345c7"; !strings.HasPrefix(signs, want) {
		t.Errorf("signs %s, want %s", signs, want)
	}
	for i := range signs {
		if strings.Count(signs, signs[i:i+1]) > 1 {
			t.Errorf("two algorithms have the sign %c", signs[i])
		}
	}
	unknown := limiter.Algorithm(200)
	if unknown.String() != "algorithm 200" || unknown.Sign() != 0 || unknown.HasBurst() || unknown.HasLeases() || unknown.HasValues() || unknown.HasSteps() ||
		unknown.IsPacked() || unknown.IsRedisson() || unknown.MayDouble() {
		t.Errorf("%v has traits", unknown)
	}
	if _, err := limiter.ParseAlgorithm(""); err == nil {
		t.Error("an empty name is parsed")
	}
}

// Whoever adds an algorithm is told where it must be named: in the error for an unknown one, and in the tables of the
// package's document and of README.md.
func TestAlgorithm_IsNamedInEachTable(t *testing.T) {
	_, err := limiter.ParseAlgorithm("leaky")
	document, readme := string(filetest.Read(t, "doc.go")), strings.ToLower(string(filetest.Read(t, "README.md")))
	for a := range limiter.NumAlgorithms {
		if name := a.String(); !strings.Contains(err.Error(), name) || !strings.Contains(document, "//\t"+name+" ") {
			t.Errorf("%s is not in the error %v, or not in the table of doc.go", name, err)
		}
		if row := "\n| `" + strings.ReplaceAll(a.String(), "_", "") + "` |"; !strings.Contains(readme, row) {
			t.Errorf("README.md has no row of %s", a)
		}
	}
}
