package config

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// What a size is written as is read as the same, in the largest unit that says it
// whole.
func TestSize_IsReadAsItIsWritten(t *testing.T) {
	for n := size(1); n > 0 && n < math.MaxInt64/3; n *= 2 {
		for _, s := range []size{n, n + 1, 3 * n, n*2 - 1} {
			if s <= 0 {
				continue
			}
			if got, err := parseSize(s.String()); err != nil || got != s {
				t.Errorf("%d is written as %s, which is read as %d, %v", s, s, got, err)
			}
		}
	}
	for s, want := range map[size]string{1: "1B", 1023: "1023B", 1024: "1KiB", 1536: "1536B", 64 << 10: "64KiB", 1 << 20: "1MiB", 3 << 30: "3GiB", 1<<30 + 1<<10: "1048577KiB"} {
		if got := s.String(); got != want {
			t.Errorf("%d is written as %s; want %s", s, got, want)
		}
	}
}

func TestSize_WhatIsNone(t *testing.T) {
	for _, text := range []string{"", "0B", "-1B", "+1B", "01B", "1", "1K", "1KB", "1kib", "1.5MiB", " 1B", "1 B", "1B ", "B", "GiB", "0x1B", "9223372036854775808B", "9007199254740993KiB", "8589934592GiB"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q is read as %d; want an error", text, got)
		}
	}
	if got, err := parseSize("8589934591GiB"); err != nil || got != 8589934591<<30 {
		t.Errorf("the most is read as %d, %v", got, err)
	}
}

// Durations and numbers are read where they are within bounds, and each way of writing
// something else has an answer of its own.
func TestScalars_EachFaultHasItsAnswer(t *testing.T) {
	for field, faults := range map[string]map[string]string{
		"listen: {timeouts: {idle: %s}}": {
			"5": "5 has no unit", "5x": `"5x" is not a duration`, "0s": "must be longer than 0s", "-1s": `"-1s" is not a duration`, "[1s]": "got a list", "1h30": `"1h30" is not a duration`, "true": `"true" is not a duration`,
		},
		"listen: {max_header: %s}": {
			"64": "64 has no unit", "64KB": `"64KB" is not a size`, "0B": `"0B" is not a size`, "{a: b}": "got a mapping",
		},
		"client_ip: {ipv6_prefix: %s}": {
			"010": "can be read as another number", "+1": "can be read as another number", "1e3": "want a whole number", "1.0": "want a whole number", `"3"`: "in quotes", "-1": "out of range", "99999999999999999999": "want a whole number",
		},
		"defaults: {expose: %s}": {
			"yes": "want true or false", "True": "want true or false", "1": "want true or false", `"true"`: "in quotes", "on": "want true or false",
		},
	} {
		for text, want := range faults {
			c, err := Parse("weir.yaml", []byte(fmt.Sprintf(field, text)+"\n"+small), environment)
			if got := wantProblems(t, c, err); len(got) != 1 || got[0].Line != 1 || got[0].Instead == "" || !strings.Contains(got[0].What, want) {
				t.Errorf("%s: %v; want one problem that says %q, and what to write", fmt.Sprintf(field, text), got, want)
			}
		}
	}
}
