package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/limiter"
)

// said is the problems and warnings of a text, without their places.
func said(t *testing.T, text string) string {
	t.Helper()
	c, err := Parse("weir.yaml", []byte(text), environment)
	var problems Problems
	switch {
	case errors.As(err, &problems):
	case err != nil:
		t.Fatalf("%v in\n%s", err, text)
	default:
		problems = c.Warnings
	}
	var all []string
	for _, p := range problems {
		what := strings.TrimSuffix(p.What+"; "+p.Instead, "; ")
		all = append(all, what)
	}
	return strings.Join(all, "\n")
}

// What may stand at a bound is taken there, and one beyond it is not; the message says
// which it is.
func TestBounds_LastThatFitsAndFirstThatDoesNot(t *testing.T) {
	const route = "\nroutes: [{name: a, match: {path: /a}, upstream: echo, limits: [{key: client_ip, rate: 1/1m}]}]\n"
	const returning = "\nroutes: [{name: a, match: {path: /a}, upstream: echo, limits: [{key: client_ip, rate: 1/1m, return_on: {route: b, key: client_ip}}]}, {name: b, match: {path: /b, methods: [POST]}, upstream: echo, limits: [{key: client_ip, rate: 1/1m}]}]\n"
	limit := func(fields string) string {
		return "routes: [{name: a, match: {path: /a}, upstream: echo, limits: [{key: client_ip, " + fields + "}]}]\n"
	}
	steps := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("1m, ", n), ", ") + "]" }
	long := strings.Repeat("a", 300)
	for _, row := range []struct {
		text       string // with @ in the place of the value
		good, bad  string
		want, also string // of bad, and of good
	}{
		{text: "alerts: {webhook: 'https://a/', secret: 0123456789abcdef, used: @}" + route, good: "1%", bad: "0%", want: `"0%" is not a percentage; write 1% to 100%`},
		{text: "alerts: {webhook: 'https://a/', secret: 0123456789abcdef, used: @}" + route, good: "100%", bad: "101%", want: `"101%" is not a percentage; write 1% to 100%`},
		{text: "alerts: {webhook: 'https://a/', secret: 0123456789abcdef, conversion: @}" + returning, good: "1%", bad: "0%", want: `"0%" is not a percentage; write 1% to 99%, for example 35%`},
		{text: "alerts: {webhook: 'https://a/', secret: 0123456789abcdef, conversion: @}" + returning, good: "99%", bad: "100%", want: `"100%" is not a percentage; write 1% to 99%, for example 35%`},
		{text: "alerts: {webhook: 'https://a/', secret: 0123456789abcdef, repeat: @}" + route, good: "2m", bad: "119s", want: "is too short, alerts look at two minutes; write at least 2m"},
		{text: "alerts: {webhook: 'https://a/', secret: @}" + route, good: long[:16], bad: long[:15], want: "the secret is short enough to guess; use 16 characters or more, made at random"},
		{text: "traces: {endpoint: 'https://a', sample: @}" + route, good: "0%", bad: "-0.1%", want: `"-0.1%" is not a percentage; write 0% to 100%, for example 0.1%`},
		{text: "traces: {endpoint: 'https://a', sample: @}" + route, good: "100%", bad: "100.1%", want: `"100.1%" is not a percentage; write 0% to 100%, for example 0.1%`},
		{text: "privacy: {hash_secret: @}" + route, good: long[:16], bad: long[:15], want: "the secret is short enough to guess; use 16 characters or more, made at random"},
		{text: "listen: {max_header: @}" + route, good: "1KiB", bad: "1023B", want: "1023B is out of range; write 1KiB to 16MiB"},
		{text: "listen: {max_header: @}" + route, good: "16MiB", bad: "16777217B", want: "16777217B is out of range; write 1KiB to 16MiB"},
		{text: "listen: {max_buffered: @}" + route, good: "1MiB", bad: "1048575B", want: "1048575B is out of range; write 1MiB or more, for example 128MiB"},
		{text: "listen: {max_buffered: @}" + route, good: "8589934591GiB", bad: "8589934592GiB", want: `"8589934592GiB" is not a size; write a whole number above 0`},
		{text: "listen: {max_buffered: @}" + route, good: "9223372036854775807B", bad: "9223372036854775808B", want: `"9223372036854775808B" is not a size`},
		{text: limit("cooldown: @"), good: steps(limiter.MaxSteps), bad: steps(limiter.MaxSteps + 1), want: "31 steps are too many; write at most 30"},
		{text: limit("cooldown: @"), good: "[1m]", bad: "[]", want: "there is no pause; write for example [1m, 5m, 1h]"},
		{text: limit("cooldown: @"), good: "[1m, 1m]", bad: "[1m, 59s]", want: "is shorter than the step before; write them in ascending order"},
		{text: limit("cooldown: @"), good: "[183d]", bad: "[4393h]", want: "is longer than can be remembered; write at most 183d"},
		{text: limit("rate: @/1h, distinct: 'header:X-User'"), good: "1000", bad: "1001", want: "stores every value, and 1001 of one key are too many; write a rate of at most 1000"},
		{text: limit("rate: 1/1m, wait: @"), good: "1m", bad: "60001ms", want: "is longer than clients wait; write at most 1m"},
		{text: limit("rate: 1/@"), good: "366d", bad: "367d", want: "366d"},
		{text: "store: redis\n" + limit("rate: @/1m"), good: "100", bad: "101", want: "a token bucket of 101/1m costs Redis about twice what a sliding log does"},
		{text: limit("rate: @/1m, algorithm: fixed_window"), good: "6", bad: "5", want: "fixed_window may let 10 pass within one window of 5/1m; write token_bucket"},
		{text: limit("rate: @/1m, algorithm: sliding_window"), good: "6", bad: "5", want: "sliding_window may let 10 pass within one window of 5/1m; write token_bucket"},
		{text: limit("rate: 1/1m, penalty: {after: 2, ban: @}"), good: "366d", bad: "367d", want: "is longer than a ban may be; write at most 366d"},
		{text: limit("rate: 1/366d, algorithm: gcra, burst: @"), good: "1", bad: "2", want: "a burst of 2 takes more than 366d to return at 1/366d; write a smaller burst"},
		{text: strings.Replace(route, "upstream: echo", "upstream: echo, idempotency: {header: A, life: @}", 1), good: "366d", bad: "367d", want: "is longer than can be remembered; write at most 366d"},
		{text: strings.Replace(route, "upstream: echo", "upstream: echo, refund_on: {status: [@]}", 1), good: "500-500", bad: "501-500", want: `501-500" ends before it begins`},
		{text: strings.Replace(route, "path: /a", "path: /a, host: @", 1), good: host(253), bad: host(254), want: "is not a host; write api.example.com or *.example.com, without a port"},
	} {
		if got := said(t, strings.Replace(row.text, "@", row.good, 1)); got != row.also {
			t.Errorf("%s in\n%s says %q; want %q", row.good, row.text, got, row.also)
		}
		if got := said(t, strings.Replace(row.text, "@", row.bad, 1)); !strings.Contains(got, row.want) || strings.Contains(got, "\n") || got == "" {
			t.Errorf("%s in\n%s says %q; want %q", row.bad, row.text, got, row.want)
		}
	}
}

// host is a host's name of so many bytes.
func host(n int) string {
	name := strings.Repeat(strings.Repeat("a", 49)+".", 6)
	return name[len(name)-n+3:] + "com"
}
