package limiter

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A RedissonFormat is how the RRateLimiter of a version of Redisson keeps what was
// taken. All but RedissonWindow only say how a limiter without entries gets its
// first: where there are some, theirs decides.
type RedissonFormat uint8

// The forms.
const (
	RedissonByte   RedissonFormat = iota // 3.17 and later
	RedissonLong                         // 3.16.4 to 3.16.8
	RedissonFloat                        // 3.13.3 to 3.16.3
	RedissonWindow                       // up to 3.13.2: a fixed window, so up to twice the rate across a border
)

// String is what scripts call f.
func (f RedissonFormat) String() string {
	return [...]string{"byte", "long", "float", "window"}[f]
}

// RedissonFormatOf is the form of a version, of which the patch may be missing: then
// it is the last one. An error wraps ErrInvalidLimit.
func RedissonFormatOf(version string) (RedissonFormat, error) {
	const newest = 999
	parts := strings.Split(version, ".")
	n := [3]int{0, newest, newest}
	if len(parts) > len(n) {
		parts = nil
	}
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			parts = nil
			break
		}
		n[i] = int(v)
	}
	if len(parts) < 2 || n[0] < 1 {
		return 0, fmt.Errorf("%w: %q is not a Redisson version; write one as 3.16.3", ErrInvalidLimit, version)
	}
	before := func(major, minor, patch int) bool {
		return n[0] < major || n[0] == major && (n[1] < minor || n[1] == minor && n[2] < patch)
	}
	switch {
	case before(3, 13, 3):
		return RedissonWindow, nil
	case before(3, 16, 4):
		return RedissonFloat, nil
	case before(3, 17, 0):
		return RedissonLong, nil
	}
	return RedissonByte, nil
}

// MaxRedissonName is how long the name of a limiter may be, in bytes.
const MaxRedissonName = 512

// CheckRedissonKey returns an error that wraps ErrInvalidLimit if text, which a client has
// sent, may not become part of a limiter's name: without braces, whitespace and
// what cannot be seen it stays what it is there.
func CheckRedissonKey(text string) error {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(c rune) bool {
		return c == '{' || c == '}' || !unicode.IsGraphic(c) || unicode.IsSpace(c)
	}) {
		return fmt.Errorf("%w: %q in a Redisson name: it holds braces, blanks or what cannot be seen", ErrInvalidLimit, text)
	}
	return nil
}

// CheckRedissonName returns an error that wraps ErrInvalidLimit if name is empty or too
// long; if it holds braces that put the keys of one limiter into several slots of a
// cluster, unless it holds exactly one pair with something between, or none; or
// if it looks like a key of another limiter: it ends in :value or :permits, or has
// that, after braces, before what tells clients apart.
func CheckRedissonName(name string) error {
	before, rest, open := strings.Cut(name, "{")
	tag, after, closed := strings.Cut(rest, "}")
	switch {
	case name == "":
		return fmt.Errorf("%w: a Redisson limiter has a name", ErrInvalidLimit)
	case len(name) > MaxRedissonName:
		return fmt.Errorf("%w: a name of %d bytes; the most is %d", ErrInvalidLimit, len(name), MaxRedissonName)
	case open && (!closed || tag == "" || strings.Contains(before, "}") || strings.ContainsAny(tag, "{") || strings.ContainsAny(after, "{}")),
		!open && strings.Contains(name, "}"):
		return fmt.Errorf("%w: the braces in the name %q; write none, or one pair with something between", ErrInvalidLimit, name)
	}
	for _, part := range []string{":value", ":permits"} {
		if strings.HasSuffix(name, part) || strings.Contains(after, part+":") {
			return fmt.Errorf("%w: the name %q is that of a key of another limiter; %s stands in it", ErrInvalidLimit, name, part)
		}
	}
	return nil
}
