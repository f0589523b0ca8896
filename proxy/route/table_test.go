package route

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unsafe"
)

// newTable builds a table of "NAME METHODS HOST PATH [Header=value ...]"; "-"
// stands for any. A ! behind the name guards the pattern.
func newTable(lines ...string) *Table[string] {
	var all []Entry[string]
	for _, line := range lines {
		part := strings.Fields(line)
		name, guarded := strings.CutSuffix(part[0], "!")
		p := Pattern{Path: part[3], Headers: map[string]string{}, Guarded: guarded}
		if part[1] != "-" {
			p.Methods = strings.Split(part[1], ",")
		}
		if part[2] != "-" {
			p.Host = part[2]
		}
		for _, h := range part[4:] {
			name, value, _ := strings.Cut(h, "=")
			p.Headers[name] = value
		}
		all = append(all, Entry[string]{p, name})
	}
	return NewTable(all)
}

// A testMessage is what a request says beside where it goes.
type testMessage struct {
	fields http.Header
	query  string
	form   bool
}

func (m *testMessage) Header(name string) []string      { return m.fields[name] }
func (m *testMessage) ParsedQuery() (url.Values, error) { return ParseQuery(m.query) }
func (m *testMessage) HasForm() bool                    { return m.form }

func newRequest(method, host, path string, headers ...string) *Request {
	m := &testMessage{fields: http.Header{}}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, "=")
		m.fields.Add(name, value)
	}
	return &Request{RawTarget: RawTarget{Method: method}, Target: Target{Host: host, SentPath: path, Path: path}, Message: m}
}

// params writes what is known of the path of q.
func params(q *Request) string {
	var all []string
	for name := range q.Params() {
		all = append(all, name+"="+q.Param(name))
	}
	return strings.Join(all, " ")
}

func TestMatch_MostSpecificWins(t *testing.T) {
	tb := newTable(
		"rest        -        -                /*",
		"send        POST     -                /v1/sms/send",
		"send-any    -        -                /v1/sms/send",
		"user        -        -                /v1/users/{id}",
		"user-number -        -                /v1/users/{id:[0-9]+}",
		"user-me     -        -                /v1/users/me",
		"user-sub    -        -                /v1/users/{who}/keys",
		"api         -        api.example.com  /*",
		"tenant      -        *.example.com    /v1/*",
		"deep        -        *.b.example.com  /v1/*",
		"beta        -        -                /v1/sms/send X-App=beta",
		"beta-post   POST     -                /v1/sms/send X-App=beta X-Test=*",
		"double      -        -                /v1/sms/send X-App=beta",
		"files       GET,HEAD -                /files/*",
		"brace       -        -                /tag/{t:[a-z]{2}}",
		"dash        -        -                /pair/{a}-{b}",
	)
	for _, c := range []struct {
		method, host, path string
		headers            []string
		want, params       string
	}{
		{"GET", "x", "/", nil, "rest", "*="},
		{"POST", "x", "/v1/sms/send", nil, "send", ""},
		{"GET", "x", "/v1/sms/send", nil, "send-any", ""},
		{"PROPFIND", "x", "/v1/sms/send", nil, "send-any", ""},
		{"GET", "x", "/v1/sms/send/", nil, "rest", "*=v1/sms/send/"},
		{"GET", "x", "/v1/sms/send", []string{"X-App=beta"}, "beta", ""},
		{"POST", "x", "/v1/sms/send", []string{"X-App=beta", "X-Test=1"}, "beta-post", ""},
		{"POST", "x", "/v1/sms/send", []string{"X-App=beta"}, "send", ""},
		{"GET", "x", "/v1/sms/send", []string{"X-App=gamma"}, "send-any", ""},
		{"GET", "x", "/v1/users/bob", nil, "user", "id=bob"},
		{"GET", "x", "/v1/users/42", nil, "user-number", "id=42"},
		{"GET", "x", "/v1/users/me", nil, "user-me", ""},
		{"GET", "x", "/v1/users/bob/keys", nil, "user-sub", "who=bob"},
		{"GET", "x", "/v1/users/j%C3%B6rg", nil, "user", "id=jörg"},
		{"GET", "api.example.com", "/v1/sms/send", nil, "api", "*=v1/sms/send"},
		{"GET", "c.example.com", "/v1/sms/send", nil, "tenant", "*=sms/send"},
		{"GET", "a.b.example.com", "/v1/x", nil, "deep", "*=x"},
		{"GET", "c.example.com", "/v2", nil, "rest", "*=v2"},
		{"GET", "example.com", "/v1/x", nil, "rest", "*=v1/x"},
		{"GET", ".example.com", "/v1/x", nil, "rest", "*=v1/x"},
		{"HEAD", "x", "/files/a/b", nil, "files", "*=a/b"},
		{"POST", "x", "/files/a", nil, "rest", "*=files/a"},
		{"GET", "x", "/tag/de", nil, "brace", "t=de"},
		{"GET", "x", "/tag/deu", nil, "rest", "*=tag/deu"},
		{"GET", "x", "/pair/one-two", nil, "dash", "a=one b=two"},
	} {
		q := newRequest(c.method, c.host, c.path, c.headers...)
		found, err := tb.Find(q)
		if err != nil {
			t.Errorf("%s %s%s %v: %v; want %s", c.method, c.host, c.path, c.headers, err, c.want)
			continue
		}
		if got := params(q); found != c.want || got != c.params {
			t.Errorf("%s %s%s %v: route %s with %q; want %s with %q", c.method, c.host, c.path, c.headers, found, got, c.want, c.params)
		}
	}
}

func TestMatch_NoRoute(t *testing.T) {
	tb := newTable("send POST,PUT - /v1/sms/send", "get GET a.example.com /v1/sms/send", "any - - /any")
	if found, err := tb.Find(newRequest("GET", "x", "/nowhere")); !errors.Is(err, ErrNone) || found != "" {
		t.Errorf("unknown path: %q, %v; want ErrNone", found, err)
	}
	q := newRequest("DELETE", "a.example.com", "/v1/sms/send")
	if found, err := tb.Find(q); !errors.Is(err, ErrMethod) || found != "" {
		t.Errorf("other method: %q, %v; want ErrMethod", found, err)
	}
	if got := strings.Join(tb.Allowed(q), ","); got != "GET,POST,PUT" {
		t.Errorf("allowed = %s; want GET,POST,PUT", got)
	}
	if got := newRequest("GET", "x", "/any").Param("id"); got != "" {
		t.Errorf("a parameter before anything was found = %q; want none", got)
	}
}

func TestMatch_EarlierOfEqualsWins(t *testing.T) {
	tb := newTable("first - - /a/{x}", "second - - /a/{y}")
	q := newRequest("GET", "x", "/a/1")
	if found, err := tb.Find(q); err != nil || found != "first" || q.Param("x") != "1" {
		t.Errorf("found %s, x = %q, %v; want first with x=1", found, q.Param("x"), err)
	}
}

// A request that is used again has nothing of the one before.
func TestRequest_ResetForgets(t *testing.T) {
	tb := newTable("user - - /u/{id}", "me - - /u/me")
	q := newRequest("GET", "x", "/u/alice")
	if _, err := tb.Find(q); err != nil || params(q) != "id=alice" {
		t.Fatalf("params %q, %v; want id=alice", params(q), err)
	}
	q.Reset()
	if q.Method != "" || q.Path != "" || q.Message != nil || params(q) != "" || q.Param("id") != "" {
		t.Errorf("after Reset %+v with %q; want nothing", q, params(q))
	}
}

// Strings of a request share the buffer of its connection. What is kept does not.
func TestRequest_KeepOutlivesItsStrings(t *testing.T) {
	tb := newTable("user - - /u/{id}")
	buffer := []byte("/u/alice")
	q := newRequest("GET", "x", unsafe.String(&buffer[0], len(buffer)))
	if _, err := tb.Find(q); err != nil {
		t.Fatal(err)
	}
	q.Keep()
	copy(buffer, "overwritten")
	if got := q.Param("id"); got != "alice" || q.Path != "/u/alice" {
		t.Errorf("id = %q of %q after its buffer was written over; want alice of /u/alice", got, q.Path)
	}
}

// BenchmarkMatch shows that finding the route of a request costs the same
// however many routes there are: compare routes=1000 with routes=10.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("routes=%d", n), func(b *testing.B) {
			var lines, paths []string
			for i := range n / 2 {
				lines = append(lines, fmt.Sprintf("a%d POST,GET - /v1/service%03d/{id}/send", i, i), fmt.Sprintf("b%d - - /v1/service%03d/send", i, i))
				paths = append(paths, fmt.Sprintf("/v1/service%03d/4711/send", i), fmt.Sprintf("/v1/service%03d/send", i))
			}
			tb := newTable(lines...)
			q := newRequest("POST", "x", "")
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				q.RawTarget = RawTarget{Method: "POST", Proto: "HTTP/1.1", HostField: "api.example.com:8080", RequestTarget: paths[i%n]}
				if err := q.Normalize(); err != nil {
					b.Fatal(err)
				}
				if _, err := tb.Find(q); err != nil {
					b.Fatal(err)
				}
				i += 7
			}
		})
	}
}
