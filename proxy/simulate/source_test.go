package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/test/pooltest"
	"github.com/weir-proxy/weir/test/rounds"
	"github.com/weir-proxy/weir/test/weirtest"
)

// A record takes nothing from the line of one client to that of another.
func TestMergeReader_RecyclesEmptyRecords(t *testing.T) {
	var r record
	pooltest.Fill(t, &r)
	new(mergeReader).recycle(&r)
	pooltest.Empty(t, &r)
}

// file is a configuration with keys from many places.
const file = `
keys:
  phone: {from: header:X-Phone, sensitive: true}
  number: {from: json:/user/phone}
  agent: header:User-Agent
  sid: cookie:sid
upstreams: {demo: echo}
routes:
  - name: send
    match: {methods: [POST], path: /send}
    upstream: demo
    limits: [{name: phone, key: phone, rate: 1/1m}, {name: ip, key: client_ip, rate: 3/1m}]
  - name: search
    match: {path: /search}
    upstream: demo
    limits: [{name: agent, key: agent, rate: 2/1m}, {name: user, key: query:user, rate: 2/1m}, {name: sid, key: sid, rate: 9/1m}, {name: number, key: number, rate: 9/1m}]
`

func newNames(t testing.TB, given ...string) *Names {
	t.Helper()
	n, err := NewNames(given, weirtest.Load(t, file))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// readFirst reads the first line.
func readFirst(t testing.TB, line string, n *Names, format Format) (lineKind, *record) {
	t.Helper()
	s, err := open(Log{"log", strings.NewReader(line)}, format, n)
	if err != nil {
		t.Fatal(err)
	}
	var r record
	k, err := s.next(&r)
	if err != nil {
		t.Fatal(err)
	}
	return k, &r
}

func TestRead_Formats(t *testing.T) {
	at := time.Date(2026, 11, 22, 11, 5, 47, 0, time.UTC)
	ip := netip.MustParseAddr("192.0.2.1")
	header := func(name, value string) proxy.LoggedField {
		return proxy.LoggedField{Origin: key.Origin{Source: key.Header, Name: name}, Value: value}
	}
	for name, c := range map[string]struct {
		line string
		want proxy.LoggedRequest
	}{
		"combined": {
			`192.0.2.1 - alice [22/Nov/2026:12:05:47 +0100] "GET /search?user=a%20b HTTP/1.1" 200 123 "-" "curl/8 \"x\" \\"`,
			proxy.LoggedRequest{At: at, Method: "GET", Target: "/search?user=a%20b", Proto: "HTTP/1.1", Client: ip, Status: 200, Fields: []proxy.LoggedField{header("User-Agent", `curl/8 "x" \`)}},
		},
		"common": {
			`192.0.2.1 - - [22/Nov/2026:11:05:47 +0000] "POST /send HTTP/1.0" 502 -`,
			proxy.LoggedRequest{At: at, Method: "POST", Target: "/send", Proto: "HTTP/1.0", Client: ip, Status: 502},
		},
		"combined with a virtual host": {
			`api.example.com:443 192.0.2.1 - - [22/Nov/2026:11:05:47 +0000] "POST /send HTTP/2.0" 200 1 "-" "-"`,
			proxy.LoggedRequest{At: at, Method: "POST", Host: "api.example.com:443", Target: "/send", Proto: "HTTP/2.0", Client: ip, Status: 200, Fields: []proxy.LoggedField{header("User-Agent", "")}},
		},
		"IPv6": {
			`2001:db8::1 - - [22/Nov/2026:11:05:47 +0000] "GET / HTTP/1.1" 200 1`,
			proxy.LoggedRequest{At: at, Method: "GET", Target: "/", Proto: "HTTP/1.1", Client: netip.MustParseAddr("2001:db8::1"), Status: 200},
		},
		"nginx as JSON": {
			`{"msec":"1795345547.500","remote_addr":"192.0.2.1","request_method":"GET","request_uri":"/search?user=\u00fc","uri":"/x","host":"api.example.com","status":"200","request_time":"0.500","http_user_agent":"a\/b","http_x_phone":"-","cookie_sid":"s","extra":{"a":[1,{"b":"]}"}]}}`,
			proxy.LoggedRequest{At: at, Took: 500 * time.Millisecond, Method: "GET", Host: "api.example.com", Target: "/search?user=ü", Client: ip, Status: 200,
				Fields: []proxy.LoggedField{header("User-Agent", "a/b"), header("X-Phone", ""), {Origin: key.Origin{Source: key.Cookie, Name: "sid"}, Value: "s"}}},
		},
		"nginx with a request line": {
			`{"time_local":"22/Nov/2026:11:05:47 +0000","remote_addr":"192.0.2.1","request":"GET /search?user=a HTTP/1.1","status":404,"args":"user=a"}`,
			proxy.LoggedRequest{At: at, Method: "GET", Target: "/search?user=a", Proto: "HTTP/1.1", Client: ip, Status: 404},
		},
		"path and query apart": {
			`{"@timestamp":"2026-11-22T11:05:47Z","remote_addr":"192.0.2.1","method":"GET","path":"/search","query":"user=a","status":200}`,
			proxy.LoggedRequest{At: at, Method: "GET", Target: "/search?user=a", Client: ip, Status: 200},
		},
		"Caddy": {
			`{"level":"info","ts":1795345547.25,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"10.0.0.1","remote_port":"5","client_ip":"192.0.2.1","proto":"HTTP/2.0","method":"POST","host":"api.example.com","uri":"/send","headers":{"User-Agent":["curl"],"X-Phone":["138"],"Accept":["a","b"]},"tls":{"resumed":false}},"bytes_read":0,"user_id":"","duration":0.25,"size":1,"status":200,"resp_headers":{"Server":["Caddy"]}}`,
			proxy.LoggedRequest{At: at, Took: 250 * time.Millisecond, Method: "POST", Host: "api.example.com", Target: "/send", Proto: "HTTP/2.0", Client: ip, Status: 200, Fields: []proxy.LoggedField{header("User-Agent", "curl"), header("X-Phone", "138")}},
		},
		"Traefik": {
			`{"ClientAddr":"192.0.2.1:9","ClientHost":"192.0.2.1","DownstreamStatus":200,"Duration":1500000,"RequestHost":"api.example.com","RequestMethod":"GET","RequestPath":"/search?user=a","RequestProtocol":"HTTP/1.1","StartUTC":"2026-11-22T11:05:47Z","request_X-Phone":"138","level":"info","msg":"","time":"2026-11-22T11:05:48Z"}`,
			proxy.LoggedRequest{At: at, Took: 1500 * time.Microsecond, Method: "GET", Host: "api.example.com", Target: "/search?user=a", Proto: "HTTP/1.1", Client: ip, Status: 200, Fields: []proxy.LoggedField{header("X-Phone", "138")}},
		},
		"Envoy": {
			`{"start_time":"2026-11-22T11:05:47.000Z","method":"GET","path":"/search?user=a","protocol":"HTTP/2","response_code":503,"duration":12,"authority":"api.example.com","downstream_remote_address":"192.0.2.1:4711"}`,
			proxy.LoggedRequest{At: at, Took: 12 * time.Millisecond, Method: "GET", Host: "api.example.com", Target: "/search?user=a", Proto: "HTTP/2", Client: ip, Status: 503},
		},
		"Weir": {
			`{"level":"info","request_id":"X","route":"send","method":"POST","host":"api.example.com","path":"/u/*","status":200,"bytes":1,"duration_ms":2.5,"client":"192.0.2.1","message":"request","time":"2026-11-22T11:05:47.002Z"}`,
			proxy.LoggedRequest{At: at.Add(-500 * time.Microsecond), Took: 2500 * time.Microsecond, Method: "POST", Host: "api.example.com", Target: "/u/*", Client: ip, Status: 200, Redacted: true},
		},
		"Weir, refused": {
			`{"level":"info","request_id":"X","route":"send","method":"POST","host":"api.example.com","path":"/send","status":429,"limit":"phone","duration_ms":0,"client":"198.51.100.0/24","message":"request","time":"2026-11-22T11:05:47.000Z"}`,
			proxy.LoggedRequest{At: at, Method: "POST", Host: "api.example.com", Target: "/send", Redacted: true},
		},
	} {
		k, r := readFirst(t, c.line, newNames(t), Auto)
		got := r.LoggedRequest
		got.At = got.At.UTC()
		if k != kindRequest || !same(got, c.want) {
			t.Errorf("%s: %v\n%+v\nwant\n%+v", name, k, got, c.want)
		}
	}
}

// Of what the combined format tells of a client, only what something is read from is taken.
func TestRead_FieldsOfTheCombinedFormat(t *testing.T) {
	const asked = `192.0.2.1 - - [22/Nov/2026:11:05:47 +0000] "GET / HTTP/1.1" 200 1`
	for _, c := range []struct{ key, rest, want string }{
		{"header:Referer", ` "http://a/" "curl"`, "header:Referer=http://a/"},
		{"header:User-Agent", ` "http://a/" "curl"`, "header:User-Agent=curl"},
		{"header:X-Phone", ` "http://a/" "curl"`, ""},
		{"header:Referer", ` "-" "curl"`, "header:Referer="},
		{"header:Referer", ` "http://a/"`, "header:Referer=http://a/"}, // without an agent
		{"header:User-Agent", ` "http://a/"`, ""},
		{"header:User-Agent", ` curl`, ""},
		{"header:User-Agent", ``, ""},
	} {
		n, err := NewNames(nil, weirtest.Load(t, "routes: [{match: {path: /}, upstream: echo, limits: [{key: '"+c.key+"', rate: 1/1m}]}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		k, r := readFirst(t, asked+c.rest, n, Auto)
		var got []string
		for _, f := range r.Fields {
			got = append(got, f.Origin.String()+"="+f.Value)
		}
		if k != kindRequest || strings.Join(got, " ") != c.want {
			t.Errorf("%s of %q: %v %q; want %q", c.key, c.rest, k, got, c.want)
		}
	}
	for status, want := range map[string]lineKind{"999": kindRequest, "1000": kindMalformed, "-": kindMalformed, "20x": kindMalformed} {
		if k, _ := readFirst(t, strings.Replace(asked, " 200 ", " "+status+" ", 1), newNames(t), Auto); k != want {
			t.Errorf("status %s: %v; want %v", status, k, want)
		}
	}
}

func same(a, b proxy.LoggedRequest) bool {
	if len(a.Fields) != len(b.Fields) || !a.At.Equal(b.At) {
		return false
	}
	for i, f := range a.Fields {
		if f != b.Fields[i] {
			return false
		}
	}
	return a.Took == b.Took && a.Method == b.Method && a.Host == b.Host && a.Target == b.Target && a.Proto == b.Proto && a.Scheme == b.Scheme &&
		a.Client == b.Client && a.Status == b.Status && a.Redacted == b.Redacted && a.Body == b.Body && a.HasBody == b.HasBody
}

func TestRead_FieldsThatTheOperatorNames(t *testing.T) {
	n := newNames(t, "uri=what", "client=who", "time=at", "duration_ms=ms", "phone=number", "json:/user/phone=p", "method=verb", "body=payload")
	k, r := readFirst(t, `{"what":"/send","who":"192.0.2.1","at":1795345547,"ms":1500,"number":"138","p":"139","verb":"POST","uri":"/else","payload":"{}"}`, n, Auto)
	if k != kindRequest || r.Target != "/send" || r.Took != 1500*time.Millisecond || r.At.Unix() != 1795345545 || !r.HasBody || r.Body != "{}" {
		t.Errorf("%v %+v", k, r.LoggedRequest)
	}
	if len(r.Fields) != 2 || r.Fields[0].Origin.String() != "header:X-Phone" || r.Fields[1].Origin.String() != "json:/user/phone" {
		t.Errorf("fields %+v", r.Fields)
	}
	for want, given := range map[string]string{
		"write WHAT=NAME": "phone", "is neither": "nothing=a", "not read from a field": "jwt:sub=a",
	} {
		if _, err := NewNames([]string{given}, weirtest.Load(t, file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--field %s: %v; want an error with %q", given, err, want)
		}
	}
}

func TestRead_WhatIsNoRequest(t *testing.T) {
	for line, want := range map[string]lineKind{
		`{"level":"info","message":"listening","time":"2026-11-22T11:05:47.000Z"}`:                                    kindOther,
		`{"request_id":"a","method":"GET","path":"/","message":"connection error","time":"2026-11-22T11:05:47.000Z"}`: kindOther,
		`{"method":"GET","path":"/"}`:                                       kindOther, // without a time
		`192.0.2.1 - - [22/Nov/2026:11:05:47 +0000] "-" 408 0`:              kindOther,
		`192.0.2.1 - - [22/Nov/2026:11:05:47 +0000] "\x16\x03\x01" 400 0`:   kindOther,
		`192.0.2.1 - - [22/Nov/2026:11:05:47 +0000] "GET /`:                 kindMalformed,
		`192.0.2.1 - - [22/Now/2026:11:05:47 +0000] "GET / HTTP/1.1" 200 1`: kindMalformed,
		`hello`: kindMalformed,
		`{"method":"GET","path":"/","time":"2026-11-22T11:05:47.000Z"`: kindMalformed,
		`{"method":"GET","path":"/","start":"0001-01-01T00:00:00Z"}`:   kindMalformed, // before 1970
		`{"method":"GET" "path":"/"}`:                                  kindMalformed,
		`{"method":"GE\qT"}`:                                           kindMalformed,
		`{"a":}`:                                                       kindMalformed,
		`{} {}`:                                                        kindMalformed,
		`{"a":"` + strings.Repeat("x", maxLine) + `"}`:                 kindMalformed,
	} {
		if k, _ := readFirst(t, line+"\nmore\n", newNames(t), Auto); k != want {
			t.Errorf("%.80s: %v; want %v", line, k, want)
		}
	}
}

func TestRead_Times(t *testing.T) {
	want := time.Date(2026, 11, 22, 11, 5, 47, 123_000_000, time.UTC)
	for _, s := range []string{
		"2026-11-22T11:05:47.123Z", "2026-11-22T12:05:47.123+01:00", "2026-11-22T12:05:47.123+0100", "2026-11-22 11:05:47.123", "2026-11-22 12:05:47.123+01:00", "2026-11-22 12:05:47.123 +01:00", "2026-11-22T11:05:47.123", "1795345547.123", "1795345547.123000000", "1795345547123", "1795345547123.000", "1795345547123000", "1795345547123000000",
	} {
		if got, ok := new(record).parseTime(s); !ok || !got.Equal(want) {
			t.Errorf("%s: %v, %v; want %v", s, got, ok, want)
		}
	}
	for _, s := range []string{"", "-", "now", "12", "2026-13-22T11:05:47Z", "2026-11-22T11:05:47.Z1Z", "22/Nov/2026:11:05", "1e9", "12345678", "1h23456789", "99999999999999999999999"} {
		if got, ok := new(record).parseTime(s); ok {
			t.Errorf("%q: %v; want an error", s, got)
		}
	}
}

// A line costs no memory once the buffers have grown.
func TestRead_AllocatesNothing(t *testing.T) {
	for name, line := range map[string]string{
		"combined": `192.0.2.1 - - [22/Nov/2026:11:05:47 +0000] "GET /search?user=a HTTP/1.1" 200 123 "-" "curl"` + "\n",
		"JSON":     `{"msec":"1795345547.500","remote_addr":"192.0.2.1","request_method":"GET","request_uri":"/search?user=a","status":"200","request_time":"0.500","http_user_agent":"a\/b","http_x_phone":"138"}` + "\n",
	} {
		const n = 1000
		s, err := open(Log{name, strings.NewReader(strings.Repeat(line, 5*(n+2)))}, Auto, newNames(t))
		if err != nil {
			t.Fatal(err)
		}
		var r record
		if got := rounds.Allocations(n, func() {
			if k, err := s.next(&r); k != kindRequest || err != nil {
				t.Fatal(k, err)
			}
			r.reset()
		}); got != 0 && !reuse.Poisoned {
			t.Errorf("%s: %v allocations a line", name, got)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"method":"GET","request":{"uri":"/","headers":{"X-Phone":["1"]}},"ts":1795345547.1,"status":200}`))
	f.Add([]byte(`192.0.2.1 - - [22/Nov/2026:11:05:47 +0000] "GET /\x41 HTTP/1.1" 200 1 "-" "a"`))
	f.Add([]byte(`{"path":"/a","query":"b","method":"\ud83d\ude00","time":"2026-11-22T11:05:47.000Z"}`))
	n := newNames(f)
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, format := range []Format{Auto, JSON, Combined} {
			s, err := open(Log{"log", strings.NewReader(string(line))}, format, n)
			if err != nil {
				return
			}
			var r record
			for {
				k, err := s.next(&r)
				if err != nil {
					break
				}
				if k == kindRequest && (r.Method == "" || r.Target == "" || r.At.IsZero()) {
					t.Errorf("%q is a request: %+v", line, r.LoggedRequest)
				}
				r.reset()
			}
		}
	})
}

// bodyOf returns the value that a line of JSON has between quotes for the body.
func bodyOf(t *testing.T, names *Names, quoted string) (body string, ok bool) {
	t.Helper()
	line := `{"method":"GET","path":"/","time":1795345547,"request_body":"` + quoted + `"}`
	k, r := readFirst(t, line, names, JSON)
	return r.Body, k == kindRequest
}

// Strings of JSON are read as encoding/json reads them; whatever that refuses between
// quotes is refused, but for \x, which nginx writes.
func TestRead_StringsAgreeWithEncodingJSON(t *testing.T) {
	names := newNames(t)
	check := func(s string) {
		t.Helper()
		var want string
		wantErr := json.Unmarshal([]byte(`"`+s+`"`), &want)
		if got, ok := bodyOf(t, names, s); ok != (wantErr == nil) || ok && got != want {
			t.Errorf("%q: %q, %v; want %q, %v", s, got, ok, want, wantErr)
		}
	}
	for _, s := range []string{
		"", "a", `\"`, `\\`, `\/`, `\b\f\n\r\t`, `a\u00fcb`, `\u00FC`, `\u00fg`, `\u00f`, `\u`, `\q`, `a\`, `\ud83d\ude00`, `\uD83D\uDE00!`,
		`\ud83d`, `\ud83d!`, `\ud83d\`, `\ud83d\n`, `\ud83d\u0041`, `\ude00\ud83d`, `\ud83d\ud83d\ude00`, `\ud83d\u00`, "\\u000\x66", `\u000G`, `\u000g`, `\u000/`, `\u000:`, `\u000@`,
		`\\x41`, `\\\\x4`,
	} {
		check(s)
	}
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{`\`, `\`, "u", `\u00e9`, `\ud83d`, `\ude00`, `\u0041`, "a", "9", "0", "F", "n", "/"}
	for range 500 {
		var b strings.Builder
		for range random.IntN(6) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		check(b.String())
	}
	for s, want := range map[string]string{`\x41\x7e`: "A~", `\x22\x5C\x0a`: "\"\\\n", `\xc3\xbc\\x41`: `ü\x41`, `\n\\\x41`: "\n\\A"} {
		if got, ok := bodyOf(t, names, s); !ok || got != want {
			t.Errorf("%q: %q, %v; want %q", s, got, ok, want)
		}
	}
	for _, s := range []string{`\x`, `\x4`, `\x4g`, `\xg4`} {
		if got, ok := bodyOf(t, names, s); ok {
			t.Errorf("%q: %q; want an error", s, got)
		}
	}
}

// A duration has the unit of its field, its own, or the one that its form tells.
func TestRead_Durations(t *testing.T) {
	for field, want := range map[string]time.Duration{
		`"request_time":"0.250"`: 250 * time.Millisecond, `"request_time":3`: 3 * time.Second, `"request_time":"-"`: 0, `"request_time":"1s"`: 0, `"request_time":-1`: 0,
		`"duration_ms":1.5`: 1500 * time.Microsecond, `"latency_us":"7"`: 7 * time.Microsecond, `"Duration":1500000`: 1500 * time.Microsecond,
		`"duration":12`: 12 * time.Millisecond, `"duration":0.25`: 250 * time.Millisecond, `"duration":"12"`: 12 * time.Second, `"took":"1.5ms"`: 1500 * time.Microsecond, `"elapsed":"-2s"`: 0,
		`"duration":"long","request_time":"2"`: 2 * time.Second, `"request_time":"2","duration":"9"`: 2 * time.Second,
	} {
		k, r := readFirst(t, `{"method":"GET","path":"/","start":1795345547,`+field+`}`, newNames(t), JSON)
		if k != kindRequest || r.Took != want {
			t.Errorf("%s: %v, %v; want %v", field, k, r.Took, want)
		}
	}
}

// Fields are those of JSON: one that is not is no line of it. Of several names of one role the first in the list counts,
// and one without a valid value does not.
func TestRead_FieldsOfJSON(t *testing.T) {
	for line, want := range map[string]string{
		`{"method":"GET","path":"/a","time":1795345547}`:                                        "GET /a",
		`{"method":"GET","path":"/a?b","query":"c","time":1795345547}`:                          "GET /a?b",
		`{"method":"GET","path":"/a","query":"?c","time":1795345547}`:                           "GET /a?c",
		`{"method":"GET","uri":"/b","request_uri":"/a?b","target":"/c","time":1795345547}`:      "GET /a?b",
		`{"method":"GET","path":"/b","uri":"/a","time":1795345547}`:                             "GET /a",
		`{"request":"PUT /a?b HTTP/1.1","uri":"/a","time":1795345547}`:                          "PUT /a?b",
		`{"request":"PUT /a HTTP/1.1","method":"GET","request_uri":"/b?c","time":1795345547}`:   "GET /b?c",
		`{"request":{"method":"GET","uri":["/a"]},"time":0.125,"timestamp":1795345547}`:         "GET /a",
		`{"method":"GET","uri":"/a","timestamp":1795345547,"time":"-","status":200,"code":"-"}`: "GET /a",
		`{"request":{"method":"GET","uri":["/a","/b"]},"time":1795345547}`:                      "",
		`{"method":"GET","method":"PUT","path":"/a","time":1795345547}`:                         "GET /a",
		`{"method":"GET","path":null,"uri":"/a","time":1795345547,"a":{"b":[1,{}]}}`:            "GET /a",
		"{\"method\":\"GET\",\"path\":\"/\xff\",\"time\":1795345547}":                           "GET /\xff",
	} {
		k, r := readFirst(t, line, newNames(t), Auto)
		if got := strings.TrimSpace(r.Method + " " + r.Target); k == kindRequest && got != want || (k == kindRequest) != (want != "") {
			t.Errorf("%s: %v %q; want %q", line, k, got, want)
		}
	}
	for _, line := range []string{`{"method":"GET","path":"/","time":1795345547,"a":-}`, `{"method":"GET","path":"/","time":1795345547,}`, `[]`} {
		if k, _ := readFirst(t, line, newNames(t), JSON); k != kindMalformed {
			t.Errorf("%s: %v; want that it is malformed", line, k)
		}
	}
}

// Numbers are decimal, without a sign or an exponent, and exact to the nanosecond.
func TestDecimal(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0": 0, "007": 7e9, "9": 9e9, "1.5": 1_500_000_000, "0.000000001": 1, "0.0000000019": 1, "3.": 3e9, "1.1234567891": 1_123_456_789, "1.09": 1_090_000_000, "1795345547.123": 1_795_345_547_123_000_000,
		"": -1, "-1": -1, "+1": -1, "1e9": -1, "1,5": -1, "1.5.": -1, "1.:": -1, "/": -1, ":": -1, "1/": -1, "a": -1, ".": -1, "1m": -1, "1h2": -1, "99999999999999999999": -1,
	} {
		if got, ok := new(record).decimal(s, "s"); ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %d, %v; want %d", s, got, ok, want)
		}
	}
}

// runBounded simulates a log within bounds.
func runBounded(t *testing.T, b Bounds, log string) (*Report, error) {
	t.Helper()
	o := Options{Format: Auto, Configs: []*config.Config{weirtest.Load(t, file)}, Bounds: b, Logs: []Log{{"log", strings.NewReader(log)}}}
	var err error
	if o.Names, err = NewNames(nil, o.Configs...); err != nil {
		t.Fatal(err)
	}
	return Run(t.Context(), o)
}

// logOf is a log of so many requests, a hundred a second, each of another client.
func logOf(requests int) string {
	var b strings.Builder
	for i := range requests {
		b.WriteString(strings.Replace(nginxLine(float64(i)/100, "POST", "/send", fmt.Sprint(i)), "192.0.2.1", fmt.Sprintf("10.0.%d.%d", i/256, i%256), 1))
	}
	return b.String()
}

// What is unpacked counts: of a few bytes gzip makes many.
func TestRun_ReadsNoMoreThanItMay(t *testing.T) {
	log := logOf(1000)
	for _, c := range []struct {
		name, log string
		most      int
		want      error
	}{
		{"as much", log, len(log), nil},
		{"one more", log, len(log) - 1, ErrTooLong},
		{"as much, packed", compressed(log), len(log), nil},
		{"one more, packed", compressed(log), len(log) - 1, ErrTooLong},
		{"one line", strings.Repeat("a", 10<<20), 1 << 20, ErrTooLong},
	} {
		r, err := runBounded(t, Bounds{MaxBytes: int64(c.most)}, c.log)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want %v", c.name, err, c.want)
		}
		if c.want == nil && r.Requests != 1000 {
			t.Errorf("%s: %d requests", c.name, r.Requests)
		}
	}
}

// Whoever wants the processor waits for a few lines, also while lines are only read, and
// when all have been read.
func TestRun_IsAtAPace(t *testing.T) {
	const requests = 20_000 // in less time than lines wait for earlier ones
	log := strings.Repeat(nginxLine(1, "POST", "/send", "1"), requests)
	calls := 0
	r, err := runBounded(t, Bounds{Pace: func() error { calls++; return nil }}, log)
	if want := len(log)/readSize + requests/paceInterval; err != nil || calls < want || r.Requests != requests {
		t.Errorf("it paused %d times, %v; want %d at least", calls, err, want)
	}
	enough := errors.New("enough")
	for _, last := range []int{1, 2, calls / 4, calls - 1} {
		n := 0
		_, err := runBounded(t, Bounds{Pace: func() error {
			if n++; n >= last {
				return enough
			}
			return nil
		}}, log)
		if !errors.Is(err, enough) || n != last {
			t.Errorf("it goes on for %d pauses, %v; want %d", n, err, last)
		}
	}
}

func TestRun_TellsThatThereWasHardlyRoom(t *testing.T) {
	r, err := runBounded(t, Bounds{MaxKeys: 1000, MaxStore: 64 << 20}, logOf(5000))
	if err != nil || !strings.Contains(strings.Join(r.Notes, "\n"), "almost fills the memory") {
		t.Errorf("%v, %d keys, %q", err, r.Result.Keys, r.Notes)
	}
	if r, err = runBounded(t, Bounds{MaxKeys: 10_000, MaxStore: 64 << 20}, logOf(50)); err != nil || strings.Contains(strings.Join(r.Notes, "\n"), "almost fills the memory") {
		t.Errorf("%v, %d keys, %q", err, r.Result.Keys, r.Notes)
	}
}
