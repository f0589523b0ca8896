package config

import (
	"crypto/tls"
	"crypto/x509"
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
		if s.Empty() {
			t.Errorf("[%s] is empty", codes)
		}
		for status, in := range want {
			if s.Has(status) != in {
				t.Errorf("[%s] has %d: %v", codes, status, !in)
			}
		}
	}
	if s := (Statuses{}); !s.Empty() || s.Has(200) {
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
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("weir.yaml", "listen:\n  https: ':8443'\n  tls:\n    cert: cert.pem\n    key: key.pem\n"+small)
	missing := func() Problems {
		t.Helper()
		c, err := load(path)
		if err != nil {
			t.Fatal(err)
		}
		problems, _ := c.CheckFiles(time.Now())
		return problems
	}
	all := missing()
	if len(all) != 2 || all[0].Line != 4 || all[1].Line != 5 || !strings.Contains(all[0].String(), "cert.pem\" cannot be read: no such file") {
		t.Fatalf("missing are %v; want both files, with their places", all)
	}
	cert, key := newCertificate(t)
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
		c, err := load(path)
		if err != nil {
			t.Fatal(err)
		}
		problems, warnings := c.CheckFiles(at)
		return problemsText(problems) + problemsText(warnings)
	}
	_, other := newCertificate(t)
	for name, c := range map[string]struct {
		key  string
		at   time.Time
		want string
	}{
		"fits":         {key, time.Now(), ""},
		"expired":      {key, time.Now().Add(2 * time.Hour), path + ":4:11: listen.tls.cert: \"" + dir + "/cert.pem\" is valid only from 0001"},
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

// A route without methods is answered with 200 for more than what verifies, and check says so.
func TestReset_WarnsOfARouteForAllMethods(t *testing.T) {
	const file = "routes:\n  - {name: send, match: {path: /a}, upstream: echo, limits: [{key: 'header:X-Id', cooldown: 1m, reset_on: {route: verify}}]}\n  - {name: verify, match: {path: /b METHODS}, upstream: echo, limits: [{key: 'header:X-Id', rate: 9/1h}]}\n"
	for methods, want := range map[string]int{"": 1, ", methods: [POST]": 0} {
		c := mustParse(t, strings.Replace(file, " METHODS", methods, 1))
		if len(c.Warnings) != want || want == 1 && !strings.Contains(c.Warnings[0].String(), "limits[0].reset_on.route: route verify has no methods") {
			t.Errorf("with%s: warns %v; want %d", methods, c.Warnings, want)
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

// A limit that every node counts by itself is allowed, and check says what it means.
func TestScope_WarnsOfWhatEachCountsAlone(t *testing.T) {
	const route = "routes:\n  - {match: {path: /a}, upstream: echo, limits: [{key: client_ip, rate: 1/1m, scope: per_instance}]}\n"
	for store, want := range map[string]string{
		"store: memory\n": "with store: memory each node counts for itself anyway; leave it out",
		"store: redis\n":  "each node allows the full rate",
	} {
		c := mustParse(t, store+route)
		if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].String(), want) {
			t.Errorf("%swarns %v; want %q", store, c.Warnings, want)
		}
	}
}

// Permits are taken ahead where a call would be, and check says of which limits none are.
func TestLease_NeedsAStoreAndRoom(t *testing.T) {
	for limit, want := range map[string]struct {
		store, warning string
		ahead          time.Duration
	}{
		"rates: [10000/1s, 300000/1m], lease: 100ms":                                          {"redis", "", 100 * time.Millisecond},
		"rate: 5000/1s, lease: 100ms":                                                         {"memory", "", 0},
		"rate: 9/1m, lease: 1s":                                                               {"redis", "nothing is taken ahead of a rate of 9", time.Second},
		"rate: 5000/1s, scope: per_instance, lease: 100ms":                                    {"redis", "a node with the full rate shares no count; leave it out", 100 * time.Millisecond},
		`rate: 5000/1s, plans: {gold: [9000/1s], none: none}, plan: "jwt:plan", lease: 100ms`: {"redis", "", 100 * time.Millisecond},
	} {
		c := mustParse(t, "store: "+want.store+"\njwt: {secret: 'a secret of thirty-two bytes, or more'}\nroutes:\n  - {match: {path: /a}, upstream: echo, limits: [{key: client_ip, algorithm: sliding_log, "+limit+"}]}\n")
		if got := c.Routes[0].Limits[0].Ahead; got != want.ahead {
			t.Errorf("%s: %v, want %v", limit, got, want.ahead)
		}
		said := fmt.Sprint(c.Warnings)
		if strings.Contains(said, ".lease:") != (want.warning != "") || !strings.Contains(said, want.warning) {
			t.Errorf("%s: warns %s, want %q", limit, said, want.warning)
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
		if err := os.WriteFile(path, []byte(strings.Replace(c.text, "PATH", c.path, 1)+small), 0o600); err != nil {
			t.Fatal(err)
		}
		read, err := load(path)
		if err != nil {
			t.Fatal(err)
		}
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
