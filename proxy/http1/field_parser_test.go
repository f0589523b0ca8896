package http1

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fieldLineRule = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\\x00-\\x08\\x0a-\\x1f\\x7f]*)\r\n")
	plainNameRule = regexp.MustCompile("^[0-9A-Za-z-]+$")
)

// byRule parses field lines with regular expressions. whole is false if they do not end
// with an empty line.
func byRule(raw string) (lines []Field, unusual, whole bool, rest string) {
	for !strings.HasPrefix(raw, "\r\n") {
		m := fieldLineRule.FindStringSubmatch(raw)
		if m == nil {
			return lines, unusual, false, raw
		}
		lines = append(lines, Field{nameOf(m[1]), m[1], strings.Trim(m[2], " \t")})
		unusual = unusual || !plainNameRule.MatchString(m[1])
		raw = raw[len(m[0]):]
	}
	return lines, unusual, true, raw[2:]
}

// parsesByRule parses raw in two calls, and wants what the rule says.
func parsesByRule(t *testing.T, raw string, at int) {
	t.Helper()
	want, unusual, whole, rest := byRule(raw)
	var f Fields
	var s fieldParser
	all := fieldLimits{bytes: 1 << 20, lines: 1 << 20}
	done, err := s.parse([]byte(raw)[:at:at], &f, all)
	if !done && err == nil {
		done, err = s.parse([]byte(raw), &f, all)
	}
	if done != whole || done && err != nil {
		t.Fatalf("%q split at %d: done %t, %v; want %t", raw, at, done, err, whole)
	}
	if !done {
		return
	}
	if got := slices.Collect(f.All()); !slices.Equal(got, want) || raw[s.next:] != rest || f.HasUnusualNames() != unusual {
		t.Fatalf("%q split at %d: got %+v, %q, %t; want %+v, %q, %t", raw, at, got, raw[s.next:], f.HasUnusualNames(), want, rest, unusual)
	}
	f.dropSet(hopByHop)
	sent := ""
	for _, line := range want {
		if !line.ID.in(hopByHop) {
			sent += line.Name + ": " + line.Value + "\r\n"
		}
	}
	if got := written(t, &f); got != sent {
		t.Fatalf("%q: sent as %q; want %q", raw, got, sent)
	}
}

// Lines of all kinds of parts, in any order, beside the rule.
func TestFieldParser_MatchesTheRule(t *testing.T) {
	parts := []string{
		"\r\n", "\r\n", "\r\n", ": ", ": ", ":", ":\t", " ", "\t", "\r", "\n", "\x00", "\x7f", "\x80", "\xc3\xa9", "x", "Y-z", "a_b", "host", "Content-Type", "content-length",
		"Accept-Language", "X-Forwarded-For", "Proxy-Authorization", "Connection", "keep-alive", "12345678", strings.Repeat("v", 23), "Content-Typ", "content\rtype", "dat\x05", "{ate", "@ccept",
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same parts in every run
	for range 200_000 {
		var b strings.Builder
		for range 1 + random.IntN(3) {
			b.WriteString(parts[random.IntN(len(parts))])
			b.WriteString([]string{": ", ":", ":  "}[random.IntN(3)])
			for range random.IntN(4) {
				b.WriteString(parts[random.IntN(len(parts))])
			}
			b.WriteString("\r\n")
		}
		b.WriteString("\r\nrest")
		parsesByRule(t, b.String(), random.IntN(b.Len()))
	}
}

// FuzzFieldParser holds the parser, which looks at eight bytes at once, to the rule.
func FuzzFieldParser(f *testing.F) {
	f.Add([]byte(lined("Host: a|X-Y:\tb |accept-language: de||rest")), 5)
	f.Add([]byte(lined("a_b: \x80|Date:|||")), 9)
	f.Fuzz(func(t *testing.T, raw []byte, at int) { parsesByRule(t, string(raw), max(at, 0)%(len(raw)+1)) })
}
