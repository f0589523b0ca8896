package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/test/certtest"
	"github.com/weir-proxy/weir/test/filetest"
)

// Parse loads a text without the files of this machine.
func Parse(name string, data []byte, env form.Env) (*Config, error) {
	l := newLoader(env)
	l.source = noFiles{}
	return l.whole(name, l.read(name, "", data))
}

// noFiles is a FileSource without files.
type noFiles struct{ diskFiles }

func (noFiles) Read(string, int64) ([]byte, error) { return nil, os.ErrNotExist }
func (noFiles) Glob(string) ([]string, error)      { return nil, nil }

// mustParse is the config of a text without faults.
func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("weir.yaml", []byte(text), environment)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return c
}

// A reload goes on with the connections that it has only where Redis is reached in
// the same way.
func TestRedis_Equal(t *testing.T) {
	base := func() Redis {
		c := mustParse(t, "redis: {addrs: [\"a:6379\"], username: u, password: p, tls: {enabled: true, server_name: r}}\n"+small)
		return c.Redis
	}
	if a := base(); !a.Equal(base()) {
		t.Error("the same file read twice reaches another Redis")
	}
	for what, change := range map[string]func(*Redis){
		"address":         func(r *Redis) { r.Addrs = []string{"b:6379"} },
		"password":        func(r *Redis) { r.Password = "q" },
		"timeout":         func(r *Redis) { r.Timeout = time.Minute },
		"no TLS":          func(r *Redis) { r.TLS = nil },
		"server name":     func(r *Redis) { r.TLS.ServerName = "s" },
		"a certificate":   func(r *Redis) { r.TLS.Certificate = &tls.Certificate{Certificate: [][]byte{{1}}} },
		"breaker":         func(r *Redis) { r.Breaker.After++ },
		"sentinel's user": func(r *Redis) { r.Sentinel.Username = "s" },
	} {
		a, b := base(), base()
		change(&b)
		if a.Equal(b) || b.Equal(a) {
			t.Errorf("%s: another Redis is said to be the same", what)
		}
		if !b.Equal(b) {
			t.Errorf("%s: it is not equal to itself", what)
		}
	}
}

func TestUpstreamTLS_ClientConfig(t *testing.T) {
	if got := (*UpstreamTLS)(nil).ClientConfig(); got != nil {
		t.Errorf("without tls: %v", got)
	}
	roots, cert := x509.NewCertPool(), &tls.Certificate{}
	got := (&UpstreamTLS{Roots: roots, ServerName: "redis.example", Certificate: cert}).ClientConfig()
	if got.RootCAs != roots || got.ServerName != "redis.example" || len(got.Certificates) != 1 || got.MinVersion != tls.VersionTLS12 {
		t.Errorf("tls = %+v", got)
	}
	if got := new(UpstreamTLS).ClientConfig(); len(got.Certificates) != 0 {
		t.Errorf("without a certificate of our own: %v", got.Certificates)
	}
}

func TestStatuses(t *testing.T) {
	refund := func(codes string) Statuses {
		t.Helper()
		return mustParse(t, "routes:\n  - {match: {path: /a}, upstream: echo, refund_on: {status: ["+codes+"]}}\n").Routes[0].RefundOn.Status
	}
	for codes, want := range map[string]map[int]bool{
		"5xx":      {499: false, 500: true, 599: true, 600: false},
		"404":      {403: false, 404: true, 405: false},
		"500-503":  {499: false, 500: true, 503: true, 504: false},
		"404, 2xx": {200: true, 299: true, 300: false, 404: true},
		"100-599":  {99: false, 100: true, 599: true, 0: false, -1: false, 1000: false, 1 << 20: false},
	} {
		s := refund(codes)
		if len(s) == 0 {
			t.Errorf("[%s] is empty", codes)
		}
		for status, in := range want {
			if s.Has(status) != in {
				t.Errorf("[%s] has %d: %v", codes, status, !in)
			}
		}
	}
	if (Statuses{}).Has(200) {
		t.Error("the zero Statuses has a status")
	}
}

// The files that only a Weir that serves opens are told of apart from faults: each
// that is not there, with its place.
func TestMissing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "weir.yaml")
	write := func(name, text string) {
		t.Helper()
		filetest.Write(t, text, dir, name)
	}
	write("weir.yaml", "listen:\n  https: ':8443'\n  tls:\n    cert: cert.pem\n    key: key.pem\n"+small)
	missing := func() Problems {
		t.Helper()
		c := mustLoad(t, path)
		problems, _ := c.CheckFiles(time.Now())
		return problems
	}
	all := missing()
	if len(all) != 2 || all[0].Line != 4 || all[1].Line != 5 || !strings.Contains(all[0].String(), "cert.pem\" cannot be read: no such file") {
		t.Fatalf("missing are %v; want both files, with their places", all)
	}
	cert, key := certtest.New(t)
	made, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	write("cert.pem", cert)
	if err := os.Mkdir(filepath.Join(dir, "key.pem"), 0o700); err != nil {
		t.Fatal(err)
	}
	if all = missing(); len(all) != 1 || all[0].Line != 5 || !strings.Contains(all[0].What, "is a directory") {
		t.Errorf("missing are %v; want the folder", all)
	}
	if err := os.Remove(filepath.Join(dir, "key.pem")); err != nil {
		t.Fatal(err)
	}
	check := func(at time.Time) string {
		t.Helper()
		c := mustLoad(t, path)
		problems, warnings := c.CheckFiles(at)
		return problemsText(problems) + problemsText(warnings)
	}
	_, other := certtest.New(t)
	for name, c := range map[string]struct {
		key  string
		at   time.Time
		want string
	}{
		"fits":         {key, time.Now(), ""},
		"expired":      {key, time.Now().Add(2 * time.Hour), path + ":4:11: listen.tls.cert: \"" + dir + "/cert.pem\" is valid only from " + made.Leaf.NotBefore.Format(time.RFC3339)},
		"of another":   {other, time.Now(), path + ":4:11: listen.tls.cert: \"" + dir + "/cert.pem\" cannot be used with its key: private key does not match public key; name PEM"},
		"no PEM":       {"junk", time.Now(), "cannot be used with its key: failed to find any PEM data in key input"},
		"encrypted":    {"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", time.Now(), path + ":5:10: listen.tls.key: \"" + dir + "/key.pem\" is encrypted; name a key without"},
		"old envelope": {"-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END EC PRIVATE KEY-----\n", time.Now(), "is encrypted"},
	} {
		write("key.pem", c.key)
		if got := check(c.at); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}

// problemsText returns problems as text, "" for none.
func problemsText(ps Problems) string {
	if len(ps) == 0 {
		return ""
	}
	return ps.Error()
}

// While a secret is replaced every key has two hashes, the second as it was before.
func TestPrivacy_PreviousHash(t *testing.T) {
	parts := []string{"phone", "+8613800138000"}
	const first, second = "hash_secret: first-secret-of-us", "hash_secret: second-secret-of-us"
	hashes := func(privacy string) (now, before string, rotates bool) {
		t.Helper()
		p := mustParse(t, "privacy: {"+privacy+"}\n"+small).Privacy
		k, rotates := p.PreviousHash(parts)
		return p.Hash(parts).String(), k.String(), rotates
	}
	plain := key.Hash("", parts).String()
	one, _, rotates := hashes(first)
	if rotates || one == plain {
		t.Errorf("under one secret %s, %v; want a hash of its own, and no other", one, rotates)
	}
	if now, before, rotates := hashes(second + ", previous_secret: first-secret-of-us"); !rotates || before != one || now == one {
		t.Errorf("after the first, %s and %s, %v; want that of the first before", now, before, rotates)
	}
	if now, before, rotates := hashes(first + ", previous_secret: none"); !rotates || before != plain || now != one {
		t.Errorf("after none, %s and %s, %v; want the plain one before", now, before, rotates)
	}
}

// What a form may say a second time is what the query's keys and costs read, but for
// what an enforced limit counts by the form.
func TestRoute_Besides(t *testing.T) {
	for limits, want := range map[string][]string{
		`{key: "query:a", rate: 1/1m}`:                                             {"a"},
		`{key: "query:a", rate: 1/1m, mode: shadow}`:                               {"a"},
		`{key: "query:a", rate: 1/1m, mode: off}`:                                  nil,
		`{key: "header:A", rate: 1/1m}`:                                            nil,
		`{key: client_ip, distinct: "query:v", rate: 1/1m}`:                        {"v"},
		`{key: client_ip, cost: "query:n", max_cost: 2, rate: 5/1m}`:               {"n"},
		`{key: {from: "query:a", must_equal: "form:a"}, rate: 1/1m}`:               nil,
		`{key: {from: "query:a", must_equal: "form:a"}, rate: 1/1m, mode: shadow}`: {"a"},
		`{key: {join: [client_ip, "query:a"]}, rate: 1/1m}`:                        {"a"},
	} {
		c := mustParse(t, "routes:\n  - {match: {path: /a}, upstream: echo, body: {max: 1KiB}, limits: ["+limits+"]}\n")
		if got := c.Routes[0].Besides(); !slices.Equal(got, want) {
			t.Errorf("%s: %q; want %q", limits, got, want)
		}
		c.Routes[0].FormBesideQuery = IgnoreForm
		if got := c.Routes[0].Besides(); got != nil {
			t.Errorf("%s: %q although forms are ignored", limits, got)
		}
	}
}

// What does not do what it says is warned of: a reset by a route for all methods, which is answered with 200 for more
// than what verifies; a limit that each node counts alone; permits taken ahead where no call is saved; and a route for
// https that no request has, as behind a proxy that ends TLS and is not trusted.
func TestWarnings_OfWhatDoesNothing(t *testing.T) {
	limit := func(fields string) string {
		return "routes: [{match: {path: /a}, upstream: echo, limits: [{key: client_ip, " + fields + "}]}]\n"
	}
	reset := func(match string) string {
		return "routes: [{name: send, match: {path: /a}, upstream: echo, limits: [{key: 'header:X-Id', cooldown: 1m, reset_on: {route: verify}}]}, {name: verify, match: {path: /b" + match + "}, upstream: echo, limits: [{key: 'header:X-Id', rate: 9/1h}]}]\n"
	}
	const tokens = "jwt: {secret: 'a secret of thirty-two bytes, or more'}\n"
	const shared, https = "store: redis\n", "routes: [{match: {path: /a, scheme: https}, upstream: echo}]\n"
	for text, want := range map[string]string{
		reset(""):                                         "limits[0].reset_on.route: route verify has no methods",
		reset(", methods: [POST]"):                        "",
		limit("rate: 1/1m, scope: per_instance"):          "with store: memory each node counts for itself anyway; leave it out",
		shared + limit("rate: 1/1m, scope: per_instance"): "each node allows the full rate",
		shared + limit("algorithm: sliding_log, rates: [10000/1s, 300000/1m], lease: 100ms"):                                                   "",
		limit("algorithm: sliding_log, rate: 5000/1s, lease: 100ms"):                                                                           "",
		shared + limit("algorithm: sliding_log, rate: 9/1m, lease: 1s"):                                                                        "lease: nothing is taken ahead of a rate of 9",
		shared + tokens + limit(`algorithm: sliding_log, rate: 5000/1s, plans: {gold: [9000/1s], none: none}, plan: "jwt:plan", lease: 100ms`): "",
		https: "never matches",
		"client_ip: {trusted_proxies: [10.0.0.0/8]}\n" + https:                 "",
		"listen: {https: ':8443', tls: {cert: a.pem, key: a.key}}\n" + https:   "",
		"listen: {decide: {http: '127.0.0.1:8082', dialect: nginx}}\n" + https: "",
		"listen: {decide: {http: none, dialect: nginx}}\n" + https:             "never matches",
	} {
		c := mustParse(t, text)
		if len(c.Warnings) != min(len(want), 1) || !strings.Contains(problemsText(c.Warnings), want) {
			t.Errorf("%s\nwarns %v; want %q", text, c.Warnings, want)
		}
	}
	// One that takes permits ahead although no count is shared is warned of for both.
	both := problemsText(mustParse(t, shared+limit("algorithm: sliding_log, rate: 5000/1s, scope: per_instance, lease: 100ms")).Warnings)
	if !strings.Contains(both, "lease: a node with the full rate shares no count; leave it out") {
		t.Errorf("warns %s", both)
	}
	for store, ahead := range map[string]time.Duration{"store: memory\n": 0, shared: 100 * time.Millisecond} {
		if got := mustParse(t, store+limit("rate: 5000/1s, lease: 100ms")).Routes[0].Limits[0].Ahead; got != ahead {
			t.Errorf("%s takes permits ahead for %v; want %v", store, got, ahead)
		}
	}
}

// An algorithm that no field of its own says is one of the field algorithm.
func TestAlgorithm_CanBeWritten(t *testing.T) {
	for a := range limiter.NumAlgorithms {
		if a.HasLeases() || a.HasValues() || a.HasSteps() || a.HasConversion() {
			continue
		}
		c := mustParse(t, "routes: [{name: r, match: {path: /}, upstream: echo, limits: [{key: client_ip, rate: 100/1m, algorithm: "+a.String()+"}]}]")
		if got := c.Routes[0].Limits[0].Algorithm; got != a {
			t.Errorf("%s is read as %s", a, got)
		}
	}
}

// A path that is written while Weir serves, in a directory that is not there, is told of before the start, with its place.
// Nothing is made or written meanwhile.
func TestCheckFiles_PathsThatAreWritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "made"), 0o700); err != nil {
		t.Fatal(err)
	}
	const redis = "store: redis\nreload: {source: redis, keep: PATH}\n"
	const acme = "listen: {https: ':8443', tls: {acme: {domains: [a.example], storage: PATH}}}\n"
	for _, c := range []struct{ name, text, path, want string }{
		{"access log", "access_log: {file: PATH}\n", "no/access.log", `access_log.file: "DIR/no/access.log" cannot be written: the directory "DIR/no": no such file or directory; make the directory`},
		{"access log", "access_log: {file: PATH}\n", "file/access.log", `cannot be written: "DIR/file" is not a directory`},
		{"access log", "access_log: {file: PATH}\n", "made", `access_log.file: "DIR/made" cannot be written: it is a directory`},
		{"access log", "access_log: {file: PATH}\n", "made/access.log", ""},
		{"access log", "access_log: {file: PATH}\n", "file", ""},
		{"access log", "access_log: {file: PATH}\n", "/dev/stdout", ""},
		{"kept", redis, "no/kept.json", `reload.keep: "DIR/no/kept.json" cannot be written`},
		{"kept", redis, "kept.json", ""},
		{"certificates", acme, "file/acme", `listen.tls.acme.storage: "DIR/file/acme" cannot be written: "DIR/file" is not a directory`},
		{"certificates", acme, "file", "it is not a directory"},
		{"certificates", acme, "no/acme", ""},                                          // Weir makes it
		{"certificates", strings.Replace(acme, "':8443'", "none", 1), "file/acme", ""}, // and nothing without HTTPS
	} {
		path := filepath.Join(dir, "weir.yaml")
		filetest.Write(t, strings.Replace(c.text, "PATH", c.path, 1)+small, path)
		read := mustLoad(t, path)
		problems, _ := read.CheckFiles(time.Now())
		got, want := problemsText(problems), strings.ReplaceAll(c.want, "DIR", dir)
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s, %s: %q; want %q", c.name, c.path, got, want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 3 {
		t.Errorf("%v, %v; want the three that the test made", left, err)
	}
}

// In a cluster each key may be on a master of its own, so that a request with three keys needs up to three script calls.
func TestRedis_RemarksManyCalls(t *testing.T) {
	const what = "up to 3 script calls"
	for text, want := range map[string]bool{
		"store: redis\nredis: {mode: cluster}": true,
		"store: redis":                         false,
	} {
		for _, mode := range []Mode{Enforce, Off} {
			c := mustParse(t, text+`
routes:
  - match: {path: /a}
    upstream: http://127.0.0.1:9
    limits: [{name: a, key: "header:A", rate: 1/1s}, {name: b, key: client_ip, rates: [1/1s, 2/1m]}, {name: c, key: client_ip, rate: 3/1h}, {name: d, key: global, rate: 9/1s, mode: "`+string(mode)+`"}]
`)
			got := slices.ContainsFunc(c.Remarks, func(p Problem) bool { return strings.Contains(p.What, what) })
			if got != (want && mode == Enforce) {
				t.Errorf("%s, mode %s: remarks %v", text, mode, c.Remarks)
			}
		}
	}
}

// Durations and numbers are read where they are within bounds, and each way of writing
// something else has an answer of its own.
func TestScalars_EachFaultHasItsAnswer(t *testing.T) {
	for field, faults := range map[string]map[string]string{
		"listen: {timeouts: {idle: %s}}": {
			"5": "5 has no unit", "5x": `"5x" is not a duration`, "0s": "must be longer than 0s", "-1s": `"-1s" is not a duration`, "[1s]": "got a list", "1h30": `"1h30" is not a duration`, "true": "want a duration, got true or false",
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
