package limiter_test

import (
	"strings"
	"testing"

	"github.com/weir-proxy/weir/limiter"
)

// Parts are told apart by their lengths, and nothing a client sends makes two
// lists of parts the same key.
func TestKeyOf_TellsPartsApart(t *testing.T) {
	seen := map[limiter.Key][]string{}
	for _, parts := range [][]string{
		nil, {""}, {"", ""}, {"a"}, {"ab"}, {"a", "b"}, {"", "ab"}, {"ab", ""}, {"ab", "c"}, {"a", "bc"}, {"a:b"}, {"\x00"}, {"\x00", ""},
		{"a\x00\x00\x00\x00\x00\x00\x00\x01b"},
	} {
		k := limiter.KeyOf(parts...)
		if other, ok := seen[k]; ok {
			t.Errorf("%q and %q are the same key", parts, other)
		}
		if k != limiter.KeyOf(parts...) {
			t.Errorf("%q has two keys", parts)
		}
		seen[k] = parts
	}
}

func TestKeyWithSecret_NeedsTheSecret(t *testing.T) {
	plain, a, b := limiter.KeyOf("x"), limiter.KeyWithSecret([]byte("a"), "x"), limiter.KeyWithSecret([]byte("b"), "x")
	if plain == a || a == b || a != limiter.KeyWithSecret([]byte("a"), "x") {
		t.Errorf("%v %v %v", plain, a, b)
	}
}

func TestKey_String(t *testing.T) {
	if s := limiter.KeyOf("x").String(); len(s) != 32 || strings.ToLower(s) != s {
		t.Errorf("%q", s)
	}
}
