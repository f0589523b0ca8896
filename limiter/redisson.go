package limiter

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A RedissonFormat is the data format in which a version of Redisson's RRateLimiter
// stores permits. Except for RedissonWindow, it only determines the format of a limiter's
// first entry; later entries use the format of those that exist.
type RedissonFormat uint8

// The formats, with the versions of Redisson that write them.
const (
	RedissonByte   RedissonFormat = iota // 3.17 and later
	RedissonLong                         // 3.16.4 to 3.16.8
	RedissonFloat                        // 3.13.3 to 3.16.3
	RedissonWindow                       // up to 3.13.2: a fixed window, so up to twice the rate across a border
)

// String returns the name of f in Redis scripts.
func (f RedissonFormat) String() string {
	return [...]string{"byte", "long", "float", "window"}[f]
}

// redissonVersion matches a version with its three numbers, or without the last.
var redissonVersion = regexp.MustCompile(`^(0*[1-9]\d{0,3})\.(\d{1,4})(?:\.(\d{1,4}))?$`)

// RedissonFormatOf returns the format of a Redisson version such as 3.16.3. Without a
// patch number it is that of the last patch. Errors wrap ErrInvalidLimit.
func RedissonFormatOf(version string) (RedissonFormat, error) {
	parts := redissonVersion.FindStringSubmatch(version)
	if parts == nil {
		return 0, fmt.Errorf("%w: %q is not a Redisson version; write a version such as 3.16.3", ErrInvalidLimit, version)
	}
	var n []int
	for _, p := range parts[1:] {
		v, _ := strconv.Atoi(cmp.Or(p, "999")) // the last patch
		n = append(n, v)
	}
	before := func(other ...int) bool { return slices.Compare(n, other) < 0 }
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

// MaxRedissonName is the maximum length of the name of a Redisson limiter, in bytes.
const MaxRedissonName = 512

// CheckRedissonKey returns an error that wraps ErrInvalidLimit if text, which comes from
// a client, must not be part of the name of a limiter because it contains braces,
// whitespace or non-printable characters.
func CheckRedissonKey(text string) error {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(c rune) bool {
		return c == '{' || c == '}' || !unicode.IsGraphic(c) || unicode.IsSpace(c)
	}) {
		return fmt.Errorf("%w: %q in a Redisson name: it contains braces, whitespace or non-printable characters", ErrInvalidLimit, text)
	}
	return nil
}

// CheckRedissonName returns an error that wraps ErrInvalidLimit if name is empty, too
// long or ambiguous. Its braces must not distribute the keys of one limiter over several
// slots of a cluster: it contains either no braces, or exactly one pair with text in
// between. It must not look like a key of another limiter, that is, end in :value or
// :permits, or have that followed by a client ID after braces.
func CheckRedissonName(name string) error {
	before, rest, open := strings.Cut(name, "{")
	tag, after, closed := strings.Cut(rest, "}")
	switch {
	case name == "":
		return fmt.Errorf("%w: the name of a Redisson limiter is empty", ErrInvalidLimit)
	case len(name) > MaxRedissonName:
		return fmt.Errorf("%w: a name of %d bytes; the maximum is %d", ErrInvalidLimit, len(name), MaxRedissonName)
	case open && (!closed || tag == "" || strings.Contains(before, "}") || strings.ContainsAny(tag, "{") || strings.ContainsAny(after, "{}")),
		!open && strings.Contains(name, "}"):
		return fmt.Errorf("%w: the braces in the name %q; write none, or one pair with text in between", ErrInvalidLimit, name)
	}
	for _, part := range []string{":value", ":permits"} {
		if strings.HasSuffix(name, part) || strings.Contains(after, part+":") {
			return fmt.Errorf("%w: the name %q looks like a key of another limiter, because it contains %s", ErrInvalidLimit, name, part)
		}
	}
	return nil
}

// A Scope determines which of the processes that share a store count together.
type Scope uint8

// The scopes.
const (
	// Overall counts the permits of all clients of a store together.
	Overall Scope = iota
	// PerClient counts the permits of each client of a store separately, so that each has
	// the whole rate. A Memory is one client.
	PerClient
)

// String returns the name of s in configuration files.
func (s Scope) String() string {
	if s > PerClient {
		return fmt.Sprintf("scope %d", uint8(s))
	}
	return [...]string{Overall: "overall", PerClient: "per_instance"}[s]
}

// ParseScope parses a name that String returns. Errors wrap ErrInvalidLimit.
func ParseScope(name string) (Scope, error) {
	for s := Overall; s <= PerClient; s++ {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%w: unknown scope %q; write overall or per_instance", ErrInvalidLimit, name)
}

// Share returns the part of l that each of n processes may grant on its own while they
// cannot count together: the n-th part of its permits, but at least 1. A limit with the
// scope PerClient is returned unchanged.
//
// Each process takes off what it has itself granted before. So a window in which they
// begin to count apart holds at most the sum over the processes of what each has granted,
// or its share if that is more: with L permits, at most L + (n-1) shares.
func (l *Limit) Share(n int) Limit {
	part, divisor := *l, int64(max(n, 1))
	if l.Scope == PerClient {
		divisor = 1
	}
	part.whole, part.parts = l, divisor
	part.Rate.Count = max(l.Rate.Count/divisor, 1)
	if l.Burst > 0 {
		part.Burst = max(l.Burst/divisor, 1)
	}
	return part
}

// shareOf returns this process's part of the permits that are left of the limit that l is a share of, or of l itself if
// it is none, when used are taken.
func (l *Limit) shareOf(used int64) int64 {
	whole, parts := l, int64(1)
	if l.whole != nil {
		whole, parts = l.whole, l.parts
	}
	return (max(0, whole.Capacity()-used) + parts - 1) / parts
}
