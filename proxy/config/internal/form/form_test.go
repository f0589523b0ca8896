package form

import (
	"errors"
	"io"
	"math"
	"testing"

	"gopkg.in/yaml.v3"
)

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"rate", "rate", 0}, {"rate", "rates", 1},
		{"rate", "raet", 1}, {"limits", "lmits", 1}, {"stroe", "store", 1}, {"abc", "xyz", 3}, {"kitten", "sitting", 3},
	} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("%q, %q: got %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := distance(tt.b, tt.a); got != tt.want {
			t.Errorf("%q, %q: got %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}

// What a size is written as is read as the same, in the largest unit that says it
// whole.
func TestSize_IsReadAsItIsWritten(t *testing.T) {
	for n := Size(1); n > 0 && n < math.MaxInt64/3; n *= 2 {
		for _, s := range []Size{n, n + 1, 3 * n, n*2 - 1} {
			if s <= 0 {
				continue
			}
			var got Size
			if err := got.Parse(s.String()); err != nil || got != s {
				t.Errorf("%d is written as %s, which is read as %d, %v", s, s, got, err)
			}
		}
	}
	for s, want := range map[Size]string{1: "1B", 1023: "1023B", 1024: "1KiB", 1536: "1536B", 64 << 10: "64KiB", 1 << 20: "1MiB", 3 << 30: "3GiB", 1<<30 + 1<<10: "1048577KiB"} {
		if got := s.String(); got != want {
			t.Errorf("%d is written as %s; want %s", s, got, want)
		}
	}
}

func TestSize_WhatIsNone(t *testing.T) {
	for _, text := range []string{"", "0B", "-1B", "+1B", "01B", "1", "1K", "1KB", "1kib", "1.5MiB", " 1B", "1 B", "1B ", "B", "GiB", "0x1B", "9223372036854775808B", "9007199254740993KiB", "8589934592GiB"} {
		var got Size
		if err := got.Parse(text); err == nil {
			t.Errorf("%q is read as %d; want an error", text, got)
		}
	}
	var got Size
	if err := got.Parse("8589934591GiB"); err != nil || got != 8589934591<<30 {
		t.Errorf("the most is read as %d, %v", got, err)
	}
}

// A panickingReader reader panics, as the YAML parser does on some inputs.
type panickingReader struct{}

func (panickingReader) Read([]byte) (int, error) { panic("broken") }

func TestDocument_ParserThatPanicsIsAnError(t *testing.T) {
	if _, err := document(yaml.NewDecoder(panickingReader{})); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}
