package limiter

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A RedissonForm is the format in which an RRateLimiter of some Redisson version stores
// permits. If a limiter has entries, their format is kept; the form, except RedissonWindow,
// applies only to new limiters.
type RedissonForm uint8

// The forms.
const (
	RedissonByte   RedissonForm = iota // 3.17 and later
	RedissonLong                       // 3.16.4 to 3.16.8
	RedissonFloat                      // 3.13.3 to 3.16.3
	RedissonWindow                     // up to 3.13.2: a fixed window, so up to twice the rate across a boundary
)

// String returns the name used in scripts.
func (f RedissonForm) String() string {
	return [...]string{"byte", "long", "float", "window"}[f]
}

// RedissonFormOf returns the form of a version; if the patch version is missing, that of
// the latest one. Errors wrap ErrLimit.
func RedissonFormOf(version string) (RedissonForm, error) {
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
		return 0, fmt.Errorf("%w: %q is not a Redisson version; write one as 3.16.3", ErrLimit, version)
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

// MaxRedissonName is the maximum length of the name of a limiter, in bytes.
const MaxRedissonName = 512

// CheckRedissonKey returns an error that wraps ErrLimit if text from a client must not
// become part of a limiter's name: it must not have braces, whitespace or invisible
// characters.
func CheckRedissonKey(text string) error {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(c rune) bool {
		return c == '{' || c == '}' || !unicode.IsGraphic(c) || unicode.IsSpace(c)
	}) {
		return fmt.Errorf("%w: %q in a Redisson name: it holds braces, blanks or what cannot be seen", ErrLimit, text)
	}
	return nil
}

// CheckRedissonName returns an error that wraps ErrLimit if name is empty or too long; if
// its braces would distribute the keys of one limiter over several slots of a cluster (it
// must have exactly one pair with something in between, or none); or if it has the form of
// a key of another limiter: it ends in :value or :permits, or has that, after braces,
// before the part that identifies a client.
func CheckRedissonName(name string) error {
	before, rest, open := strings.Cut(name, "{")
	tag, after, closed := strings.Cut(rest, "}")
	switch {
	case name == "":
		return fmt.Errorf("%w: a Redisson limiter has a name", ErrLimit)
	case len(name) > MaxRedissonName:
		return fmt.Errorf("%w: a name of %d bytes; the most is %d", ErrLimit, len(name), MaxRedissonName)
	case open && (!closed || tag == "" || strings.Contains(before, "}") || strings.ContainsAny(tag, "{") || strings.ContainsAny(after, "{}")),
		!open && strings.Contains(name, "}"):
		return fmt.Errorf("%w: the braces in the name %q; write none, or one pair with something between", ErrLimit, name)
	}
	for _, part := range []string{":value", ":permits"} {
		if strings.HasSuffix(name, part) || strings.Contains(after, part+":") {
			return fmt.Errorf("%w: the name %q is that of a key of another limiter; %s stands in it", ErrLimit, name, part)
		}
	}
	return nil
}
