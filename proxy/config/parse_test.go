package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/rounds"
)

const small = "routes:\n  - {match: {path: /a}, upstream: echo}\n"

// wantProblems returns the problems of err.
func wantProblems(t *testing.T, c *Config, err error) Problems {
	t.Helper()
	var problems Problems
	if c != nil || !errors.As(err, &problems) || len(problems) == 0 {
		t.Fatalf("got %v, %v, want problems only", c, err)
	}
	return problems
}

// A pipe that nobody writes to is no reason to wait for ever.
func TestLoad_FileThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.yaml"): ": cannot be read: no such file or directory; name a file that Weir may read",
		dir:                             ": cannot be read: is a directory; name a file that Weir may read",
		fifo:                            ": cannot be read: is not a regular file; name a file that Weir may read",
		os.DevNull:                      ": cannot be read: is not a regular file; name a file that Weir may read",
	} {
		c, err := Load(path)
		if got := wantProblems(t, c, err).Error(); got != path+want {
			t.Errorf("got %q, want %q", got, path+want)
		}
	}
}

func TestLoad_IncludedFileThatCannotBeRead(t *testing.T) {
	main := filetest.Files(t, "weir.yaml", "include: parts/*.yaml\n"+small, "parts/a.yaml/b", "")
	c, err := Load(main)
	want := filepath.Join(filepath.Dir(main), "parts/a.yaml") + ": cannot be read: is a directory; name a file that Weir may read"
	if got := wantProblems(t, c, err).Error(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLoad_EnvironmentOfTheProcess(t *testing.T) {
	t.Setenv("WEIR_TEST_PATH", "/from/the/environment")
	c, err := Load(filetest.Files(t, "weir.yaml", "routes:\n  - {match: {path: \"${WEIR_TEST_PATH}\"}, upstream: echo}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Routes[0].Match.Path; got != "/from/the/environment" {
		t.Errorf("got %s", got)
	}
}

func TestLoad_TooLong(t *testing.T) {
	c, err := Load(filetest.Files(t, "weir.yaml", strings.Repeat("#", form.MaxSize+1)))
	if got := wantProblems(t, c, err).Error(); !strings.HasSuffix(got, "is longer than 8 MiB; move parts of it to files under include") {
		t.Errorf("got %q", got)
	}
}

// TestLoad_TellsWhatItRead is what a watcher goes by.
func TestLoad_TellsWhatItRead(t *testing.T) {
	main := filetest.Files(t, "weir.yaml", "include: [\"*.yaml\", b/c.yaml, \"none/*.yaml\"]\n"+small,
		"a.yaml", "keys: {k: global}\n", "b/c.yaml", "upstreams: {u: echo}\n")
	c := mustLoad(t, main)
	dir := filepath.Dir(main)
	if want := []string{main, dir + "/a.yaml", dir + "/b/c.yaml"}; !slices.Equal(c.Files, want) {
		t.Errorf("files: got %q, want %q", c.Files, want)
	}
	if want := []string{dir + "/*.yaml", dir + "/b/c.yaml", dir + "/none/*.yaml"}; !slices.Equal(c.Globs, want) {
		t.Errorf("globs: got %q, want %q", c.Globs, want)
	}
	if c.Keys["k"] == nil || c.Upstreams["u"] == nil || len(c.Routes) != 1 {
		t.Errorf("got %v %v %v", c.Keys, c.Upstreams, c.Routes)
	}
}

func TestLoad_HashIsOfTheContent(t *testing.T) {
	hash := func(main, part, name string) string {
		t.Helper()
		return mustLoad(t, filetest.Files(t, "weir.yaml", main, name, part)).Hash
	}
	main, part := "include: \"p*.yaml\"\n"+small, "keys: {k: global}\n"
	base := hash(main, part, "p.yaml")
	if len(base) != 64 {
		t.Errorf("got %q", base)
	}
	if again := hash(main, part, "p.yaml"); again != base {
		t.Error("the hash depends on the directory")
	}
	for _, other := range []string{
		hash(main+"#", part, "p.yaml"), hash(main, part+"#", "p.yaml"), hash(main, part, "p2.yaml"),
	} {
		if other == base {
			t.Error("a change does not change the hash")
		}
	}
}

// What is a machine's own is no difference between what machines serve.
// The parser takes more for the end of a line than a newline: its lines are counted as it counts them.
func TestLoad_HashWithOtherEndsOfLines(t *testing.T) {
	hash := func(text string) string { return mustParse(t, text).Hash }
	const text = "# one\n# two\n# three\nlisten:\n  http: ':1234' # why\n\n# four\nclient_ip:\n  header: X-One\n# five\nadmin: {http: '127.0.0.1:1'}\n" + small
	for _, end := range []string{"\n", "\r\n", "\r", "\u0085", "\u2028", "\u2029"} {
		all := strings.ReplaceAll(text, "\n", end)
		comments := strings.ReplaceAll(text, "# two\n", "# two"+end)
		for _, text := range []string{all, comments} {
			if hash(text) != hash(strings.ReplaceAll(strings.ReplaceAll(text, "1234", "1235"), "0.1:1", "0.1:2")) {
				t.Errorf("with %q a listener makes a difference", end)
			}
			if hash(text) == hash(strings.ReplaceAll(text, "X-One", "X-Two")) || hash(text) == hash(strings.ReplaceAll(text, "client_ip:", "client_ip: ")) {
				t.Errorf("with %q another section makes no difference", end)
			}
		}
	}
}

func TestLoad_HashIsWithoutListenAndAdmin(t *testing.T) {
	base := mustParse(t, small)
	for _, text := range []string{
		"listen:\n  http: ':1234'\n  # why\n\nadmin: {http: '127.0.0.1:1'}\n" + small,
		small + "listen: {http: ':1234'}\n",
		"admin:\n  http: '127.0.0.1:1'\n" + small + "listen: {http: ':1234'}",
	} {
		if c := mustParse(t, text); c.Hash != base.Hash || c.Sum == base.Sum {
			t.Errorf("%s\nhash %s and sum %s; want the hash %s, and another sum", text, c.Hash, c.Sum, base.Hash)
		}
	}
	for _, text := range []string{"store: memory\n" + small, "# why\n" + small, "listen: {http: ':1234'}\n" + small + "client_ip: {header: X-Real-IP}\n"} {
		if c := mustParse(t, text); c.Hash == base.Hash {
			t.Errorf("%s has the hash of another", text)
		}
	}
	braces := "{routes: [{match: {path: /a}, upstream: echo}], listen: {http: ':1234'}}\n"
	if c := mustParse(t, braces); c.Hash == mustParse(t, strings.Replace(braces, "1234", "1235", 1)).Hash {
		t.Error("in braces, where sections are no lines, a difference does not count")
	}
}

// TestParse_AliasesAskForBoundedWork: a few hundred lines that would be
// 200,000 addresses, and a few thousand that would be as many limits, or fields.
func TestParse_AliasesAskForBoundedWork(t *testing.T) {
	list := "lists:\n  a: &l {key: client_ip, action: deny, values: [" + strings.Repeat("10.0.0.1, ", 450) + "]}\n"
	for i := range 450 {
		list += fmt.Sprintf("  a%d: *l\n", i)
	}
	limit := "routes:\n  - &r\n    match: {path: /a}\n    upstream: echo\n    limits:\n      - &one {key: client_ip, rate: 1/1m}\n"
	for _, text := range []string{
		list,
		limit + strings.Repeat("      - *one\n", 300) + strings.Repeat("  - *r\n", 300),
		limit + "      - <<: [" + strings.Repeat("*one, ", 300_000) + "]\n",
	}[:min(rounds.Of(1), 3)] {
		c, err := Parse("weir.yaml", []byte(text), environment)
		if ps := wantProblems(t, c, err); len(ps) != 1 || ps[0].What != "more values than a config may have" {
			t.Errorf("got %d problems, the first %v", len(ps), ps[0])
		}
	}
}

func TestEffective_HidesSecrets(t *testing.T) {
	c := mustParse(t, "admin: {token: hunter2, tokens: [{name: ops, token: hunter2-and-some-more}]}\nredis: {password: hunter2}\nprivacy: {hash_secret: hunter2}\njwt: {jwks: https://ops:hunter2@issuer.example/keys}\n"+small)
	if b := string(effective(t, c)); strings.Contains(b, "hunter2") || strings.Count(b, "(hidden by") != 3 || strings.Count(b, "(hidden, of ops)") != 1 {
		t.Errorf("got\n%s", b)
	}
	named := mustParse(t, "jwt: {jwks: \"https://ops:${SET}@issuer.example/keys\"}\n"+small)
	if b := string(effective(t, named)); !strings.Contains(b, "https://ops:${SET}@issuer.example/keys") {
		t.Errorf("got\n%s", b)
	}
	if c.Admin.Token != "hunter2" || c.Redis.Password != "hunter2" || c.Privacy.HashSecret != "hunter2" {
		t.Errorf("got %+v %+v %+v", c.Admin, c.Redis, c.Privacy)
	}
}

// TestEffective_IsTheSameConfig: what is said with defaults left out and with
// them written is the same, but for where it stands.
func TestEffective_IsTheSameConfig(t *testing.T) {
	for _, path := range append(mustGlob(t, "testdata/good-*.yaml"), example) {
		c := mustLoad(t, path)
		r := newLoader(environment)
		again, err := r.compile(r.read(filepath.Join(filepath.Dir(path), "effective.yaml"), "", effective(t, c)))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		for _, c := range []*Config{c, again} {
			c.Hash, c.Sum, c.Files, c.Globs, c.Warnings, c.Remarks, c.Bare, c.form = "", "", nil, nil, nil, nil, nil, nil
			c.opened, c.outputs, c.written, c.values, c.own, c.lined, c.uses = nil, nil, nil, nil, nil, nil, nil
			c.Admin.Token, c.Redis.Password, c.Redis.Sentinel.Password, c.Privacy.HashSecret, c.Alerts.Secret, c.Alerts.Webhook = "", "", "", "", "", ""
			for i := range c.Admin.Tokens {
				c.Admin.Tokens[i].Text = ""
			}
			for name := range c.Traces.Headers {
				c.Traces.Headers[name] = ""
			}
			for _, u := range c.Upstreams {
				u.Position = Position{}
			}
			for i := range c.Tokens {
				c.Tokens[i] = new(key.Tokens)
			}
			for _, k := range c.Keys {
				maskSpec(k)
			}
			for _, r := range c.Routes {
				r.Position = Position{}
				for _, l := range r.Lists {
					if l.Key.Of != nil || !l.Key.From.Source.IsAddress() {
						l.Members = nil // texts have a seed of their own, or are not shown
					}
				}
				for _, l := range r.Limits {
					l.Position = Position{}
					l.Overrides = map[limiter.Key][]limiter.Rate{{}: overrideRates(l)} // by the keys of another secret
					for _, s := range []*key.Spec{l.Key, l.Distinct} {
						if s != nil {
							maskSpec(s)
						}
					}
					if l.Plan.List != nil {
						names := l.Plan.List.Names()
						l.Plan = PlanSource{Name: &key.Spec{Name: strings.Join(names, " ")}} // a list has a seed of its own
					}
					if p := l.Prices; p != nil && p.Table != nil {
						l.Prices = &Prices{Name: p.Name + p.File + p.Text(p.Table.Dearest().Amount)} // as a list
					}
					if l.Plan.Name != nil {
						maskSpec(l.Plan.Name)
					}
				}
			}
		}
		if !reflect.DeepEqual(c, again) {
			t.Errorf("%s: got %+v, want %+v", path, again, c)
		}
	}
}

// overrideRates is all rates of single keys of l, sorted; none if they are not shown.
func overrideRates(l *Limit) (all []limiter.Rate) {
	if l.Key.IsConcealed() {
		return nil
	}
	for _, rates := range l.Overrides {
		all = append(all, rates...)
	}
	slices.SortFunc(all, func(a, b limiter.Rate) int { return cmp.Compare(a.String(), b.String()) })
	return all
}

// maskSpec puts in the place of what cannot be compared that it is there.
func maskSpec(k *key.Spec) {
	if k.Phone != nil {
		k.Phone = new(key.Phone)
	}
	if k.Tokens != nil {
		k.Tokens = new(key.Tokens)
	}
	for _, other := range append(slices.Clone(k.Join), k.Of, k.Fallback) {
		if other != nil {
			maskSpec(other)
		}
	}
}

// BenchmarkParse reads a thousand routes of two limits each.
func BenchmarkParse(b *testing.B) {
	var text strings.Builder
	text.WriteString("keys: {phone: {from: header:X-Phone, normalize: digits}}\nroutes:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "  - match: {methods: [POST], path: /v%d/send}\n    upstream: echo\n    limits:\n", i)
		text.WriteString("      - {key: phone, rates: [1/60s, 5/1h]}\n      - {key: client_ip, rate: 5/1m}\n")
	}
	for b.Loop() {
		if _, err := Parse("weir.yaml", []byte(text.String()), environment); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzParse: no text makes the loader panic. It gives either a config or
// problems that say where they are; and a config made effective is read back
// as the same.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", example} {
		files, _ := filepath.Glob(pattern)
		for _, path := range files {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("weir.yaml", data, environment)
		if err != nil {
			var problems Problems
			if c != nil || !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("got %v, %v", c, err)
			}
			for _, p := range problems {
				if p.File != "weir.yaml" || p.What == "" {
					t.Errorf("nowhere or nothing: %+v", p)
				}
			}
			return
		}
		first := effective(t, c)
		again, err := Parse("weir.yaml", first, environment)
		if err != nil {
			t.Fatalf("%v\nin\n%s", err, first)
		}
		if second := effective(t, again); !bytes.Equal(first, second) {
			t.Errorf("got\n%s\nwant\n%s", second, first)
		}
	})
}

func effective(t *testing.T, c *Config) []byte {
	t.Helper()
	return c.Effective()
}
