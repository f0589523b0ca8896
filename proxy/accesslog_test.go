package proxy

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/filetest"
)

// Each name that the configuration takes is a field, and each field has such a name.
func TestAccessLog_NamesAreThoseOfTheConfiguration(t *testing.T) {
	source := filetest.Read(t, "config/form.go")
	tag := regexp.MustCompile("`yaml:\"fields\" jsonschema:\"([^\"]+)\"`").FindSubmatch(source)
	var known []string
	for _, m := range regexp.MustCompile(`enum=([a-z_]+)`).FindAllSubmatch(tag[1], -1) {
		known = append(known, string(m[1]))
	}
	names := []string{"standard"}
	for f := range numLogFields {
		names = append(names, f.String())
		if l := newAccessLog(config.AccessLog{Fields: []string{f.String()}}); l.fields != 1<<f {
			t.Errorf("%s is %b", f, l.fields)
		}
	}
	if !slices.Equal(names, known) {
		t.Errorf("the configuration takes\n%v, the log has\n%v", known, names)
	}
	if l := newAccessLog(config.AccessLog{Fields: []string{"standard"}}); !l.fields.has(logSample) || l.fields.has(logProto) || l.needsUserAgent {
		t.Errorf("the standard fields are %b", l.fields)
	}
}

// A line has the fields that were chosen, and no others.
func TestAccessLog_FieldsAreChosen(t *testing.T) {
	always := []string{"level", "message"}
	for _, c := range []struct {
		fields string
		want   []string
	}{
		{"[status]", []string{"status"}},
		{"[route, limit, rate]", []string{"route", "limit", "rate"}},
		{"[key, wait_ms, own_ms, proto, scheme]", []string{"key", "wait_ms", "own_ms", "proto", "scheme"}},
		{"[user_agent, referer]", []string{"user_agent", "referer"}},
		{"[]", []string{"request_id", "route", "method", "host", "path", "status", "bytes", "duration_ms", "client", "limit", "wait_ms", "rate", "key", "keys"}},
		{"[standard, referer]", []string{"request_id", "route", "method", "host", "path", "status", "bytes", "duration_ms", "client", "limit", "wait_ms", "rate", "key", "keys", "referer"}},
	} {
		w := newProxy(t, "access_log: {fields: "+c.fields+"}\n"+limitYAML("{name: l, key: 'header:X-User', rate: 1/1h}"))
		for range 2 {
			w.send("GET", "/a", "X-User: alice", "User-Agent: curl/8", "Referer: https://me:p@w@example.com/who/13800138000/a?token=1")
		}
		line := w.lines("request")[1]
		if got, want := slices.Sorted(maps.Keys(line)), slices.Sorted(slices.Values(slices.Concat(c.want, always))); !slices.Equal(got, want) {
			t.Errorf("%s: fields %v; want %v", c.fields, got, want)
		}
		if r := line["referer"]; r != nil && r != "https://example.com/who/*/a" {
			t.Errorf("referer %v", r)
		}
	}
}

// A reload changes fields and sampling, and the file takes a restart.
func TestAccessLog_AReloadChangesIt(t *testing.T) {
	const rest = "routes:\n  - {name: a, match: {path: /a}, respond: {body: ok}}\n"
	w := newProxy(t, rest)
	w.sends(200, "GET", "/a")
	w.reloads("access_log: {fields: [status]}\n" + rest)
	w.sends(200, "GET", "/a")
	if lines := w.lines("request"); len(lines[0]) < 10 || len(lines[1]) != 3 {
		t.Errorf("%v", lines)
	}
	w.write("access_log: {file: other.log}\n" + rest)
	if _, err := w.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "access_log.file changed") {
		t.Errorf("%v; want that it takes a restart", err)
	}
}

// Of requests that pass one in so many is written, and says so; all others always are.
func TestAccessLog_SamplesWhatPassed(t *testing.T) {
	w := newProxy(t, `
access_log: {sample: 10}
upstreams: {demo: echo}
routes:
  - {name: a, match: {path: /a}, upstream: demo, limits: [{name: l, key: "header:X-User", rate: 100/1h}]}
  - {name: trial, match: {path: /trial}, upstream: demo, limits: [{name: l, key: "header:X-User", rate: 1/1h, mode: shadow}]}
  - {name: gone, match: {path: /gone}, upstream: "http://127.0.0.1:1"}
  - {name: free, match: {path: /free}, respond: {body: ok}, limits: [{name: l, key: client_ip, rate: 1/1h, on_store_failure: allow}]}
`)
	written := func(n, status int, path string) (lines int) {
		t.Helper()
		before := len(w.lines("request"))
		w.sendsAll(times(n, status), "GET", path, "X-User: alice")
		return len(w.lines("request")) - before
	}
	if n := written(100, 200, "/a"); n != 10 || w.lines("request")[0]["sample"] != 10.0 {
		t.Errorf("%d of 100 requests are written, the first as %v", n, w.lines("request")[0])
	}
	for _, c := range []struct {
		n, status int
		path      string
	}{{5, 429, "/a"}, {5, 404, "/nowhere"}, {5, 502, "/gone"}} {
		if n := written(c.n, c.status, c.path); n != c.n {
			t.Errorf("%d of %d answers %d are written", n, c.n, c.status)
		}
	}
	before := written(1, 200, "/trial")
	if n := written(5, 200, "/trial"); n != 5 || before > 1 {
		t.Errorf("%d of 5 requests are written that a limit in shadow mode would have refused", n)
	}
	w.store.fail(fmt.Errorf("%w: gone", limiter.ErrUnavailable))
	if n := written(5, 200, "/free"); n != 5 {
		t.Errorf("%d of 5 requests are written that were decided without the store", n)
	}
}

// The combined format is one line as Apache and nginx write it, and tells no more than
// JSON does.
func TestAccessLog_Combined(t *testing.T) {
	var lines bytes.Buffer
	w := newProxy(t, `
access_log: {format: combined}
privacy: {log_client: network}
routes:
  - {name: a, match: {path: "/a/{phone}"}, respond: {body: okay}, limits: [{name: l, key: "path:phone", rate: 100/1h}, {name: m, key: "header:User-Agent", rate: 100/1h}]}
  - {name: b, match: {path: /b}, respond: {body: ok}}
`, func(o *Options) { o.Access = &AccessWriter{zerolog.New(io.Discard), &lines} })
	for _, c := range []struct {
		target string
		header []string
		want   string
	}{
		{"/b?token=secret", nil, `192.0.2.0/24 - - [TIME] "GET /b HTTP/1.1" 200 2 "-" "-"`},
		{"/b", []string{`User-Agent: a "quoted\" é agent`, "Referer: https://example.com/x?q=1"}, `192.0.2.0/24 - - [TIME] "GET /b HTTP/1.1" 200 2 "https://example.com/x" "a \x22quoted\x5C\x22 \xC3\xA9 agent"`},
		{"/a/13800138000", []string{"User-Agent: me"}, `192.0.2.0/24 - - [TIME] "GET /a/* HTTP/1.1" 200 4 "-" "*"`},
		{"/nowhere/13800138000", nil, `192.0.2.0/24 - - [TIME] "GET /nowhere/* HTTP/1.1" 404 N "-" "-"`},
	} {
		lines.Reset()
		w.send("GET", c.target, c.header...)
		got := regexp.MustCompile(`\[\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d \+0000\]`).ReplaceAllString(lines.String(), "[TIME]")
		got = regexp.MustCompile(` 404 \d+ `).ReplaceAllString(got, " 404 N ")
		if got != c.want+"\n" {
			t.Errorf("%s:\n%swant\n%s", c.target, got, c.want)
		}
	}
}

// Without a format nothing is written of requests, and all else is.
func TestAccessLog_None(t *testing.T) {
	w := newProxy(t, "access_log: {format: none}\n"+limitYAML("{name: l, key: 'header:X-User', rate: 1/1h}"))
	w.sends(200, "GET", "/a", "X-User: alice")
	if text := w.log.String(); text != "" {
		t.Errorf("the log has %s", text)
	}
	quiet := newProxy(t, limitYAML("{name: l, key: 'header:X-User', rate: 1/1h}"), func(o *Options) { o.Log = o.Log.Level(zerolog.WarnLevel) })
	quiet.sends(200, "GET", "/a", "X-User: alice")
	if text := quiet.log.String(); text != "" {
		t.Errorf("at level warn the log has %s", text)
	}
}
