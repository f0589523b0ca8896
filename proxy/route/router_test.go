package route

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/weir-proxy/weir/test/rounds"
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
	if q.found == nil {
		return ""
	}
	var all []string
	for _, name := range q.found.params[:min(len(q.found.params), len(q.values))] {
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

func newUnguardedTable() *Table[string] {
	return newTable(
		"send! POST - /v1/send", "search! GET - /v1/Search", "user! - - /u/{id}", "tag! - - /tag/{t:[A-Z]+}/x", "me! - - /u/me", "files! - - /files/*",
		"open - - /files/Public", "any - - /v1/send", "health - - /health", "slashed - - /u/x/", "rest - - /*",
	)
}

// What a careless framework takes for a guarded pattern's path or method is found under
// that one, with the parameters as they were sent; others are found as they are written.
func TestStricter_GuardedPatternsAreFound(t *testing.T) {
	tb := newUnguardedTable()
	for line, want := range map[string]string{
		"POST /v1/send": "send", "POST /V1/send": "send", "POST /v1/SEND/": "send", "post /v1/send": "send", "pOsT /V1/Send/": "send", "POST /v1/%C5%BFend": "send",
		"GET /v1/search": "search", "HEAD /v1/Search": "search", "get /v1/SEARCH": "search",
		"GET /u/alice/": "user id=alice", "GET /U/Alice": "user id=Alice", "GET /TAG/DE/x/": "tag t=DE", "GET /files": "files *=", "GET /Files/a/b/": "files *=a/b/",
		"GET /v1/send": "any", "PUT /v1/send": "any", "GET /files/Public": "open", "GET /Health": "rest *=Health", "GET /u/x/": "slashed", "PUT /V1/SEND": "rest *=V1/SEND", "OPTIONS /v1/Search": "rest *=v1/Search",
	} {
		method, path, _ := strings.Cut(line, " ")
		q := newRequest(method, "a", path)
		found, err := tb.Find(q)
		if got := strings.TrimSpace(found + " " + params(q)); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
}

// Patterns in lower case are found the same way, although most requests for them need no
// second look: each letter is one that a careless framework folds.
func TestStricter_PatternsInLowerCase(t *testing.T) {
	tb := newTable("az! - - /az", "send! POST - /v1/send", "files! - - /files/*", "rest - - /*")
	for line, want := range map[string]string{
		"GET /az": "az", "GET /Az": "az", "GET /aZ": "az", "GET /az/": "az", "GET /a[": "rest *=a[", "GET /a@": "rest *=a@",
		"POST /v1/send/": "send", "POST /v1/senD": "send", "GET /files": "files *=", "GET /files/": "files *=", "GET /fileS": "files *=", "GET /v1/send": "rest *=v1/send",
	} {
		method, path, _ := strings.Cut(line, " ")
		q := newRequest(method, "a", path)
		found, err := tb.Find(q)
		if got := strings.TrimSpace(found + " " + params(q)); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
	deep := newTable("deep! - - /d/{id}/*", "rest - - /*")
	if found, err := deep.Find(newRequest("GET", "a", "/d/x")); found != "deep" || err != nil {
		t.Errorf("without the slash behind its parameter: %q, %v; want deep", found, err)
	}
}

// Of patterns that differ in case alone, a spelling that neither has means the guarded
// one, wherever it stands.
func TestStricter_TheGuardedOneOfTwo(t *testing.T) {
	for _, tb := range []*Table[string]{newTable("open - - /page", "guarded! - - /PAGE", "rest - - /*"), newTable("guarded! - - /PAGE", "open - - /page", "rest - - /*")} {
		for path, want := range map[string]string{"/page": "open", "/PAGE": "guarded", "/Page": "guarded", "/page/": "guarded", "/pages": "rest"} {
			if found, err := tb.Find(newRequest("GET", "a", path)); found != want || err != nil {
				t.Errorf("%s: %q, %v; want %s", path, found, err, want)
			}
		}
	}
}

// Where two guarded patterns could be meant, none is guessed, and the one that is
// written so is told of.
func TestStricter_BetweenTwoItRefuses(t *testing.T) {
	if found, err := newUnguardedTable().Find(newRequest("GET", "a", "/u/ME")); !errors.Is(err, ErrTarget) {
		t.Errorf("%q, %v; want ErrTarget", found, err)
	}
	if found, err := newUnguardedTable().FindExact(newRequest("GET", "a", "/u/ME")); found != "user" || err != nil {
		t.Errorf("plainly %q, %v; want user", found, err)
	}
}

// What careful clients send costs no allocation; see BenchmarkMatch for the number of
// entries.
func TestStricter_CostsNoAllocation(t *testing.T) {
	tb := newTable("send! POST - /v1/send", "search! GET - /v1/search", "user! - - /u/{id}", "files! - - /files/*", "any - - /v1/send", "rest - - /*")
	for _, path := range []string{"/v1/send", "/other/thing", "/u/4711", "/files/a/b"} {
		q := newRequest("GET", "a", path)
		if n := rounds.Allocations(100, func() {
			q.Path = path
			if _, err := tb.Find(q); err != nil {
				t.Error(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations; want none", path, n)
		}
	}
}

// The most specific pattern is found: exact values before prefixes, longer ones before shorter ones.
func TestDescriptors_FindTheMostSpecific(t *testing.T) {
	d := NewDescriptors([]DescriptorEntry[string]{
		{"edge", map[string]string{"key": "*"}, "any"},
		{"edge", map[string]string{"key": "a*"}, "prefix"},
		{"edge", map[string]string{"key": "ab*"}, "longer"},
		{"edge", map[string]string{"key": "abc"}, "exact"},
		{"edge", map[string]string{"key": "*", "path": "/x"}, "two"},
		{"edge", map[string]string{"key": "*", "path": "*"}, "any two"},
		{"other", map[string]string{"key": "abc"}, "elsewhere"},
	})
	for _, test := range []struct {
		domain string
		of     Descriptor
		want   string
	}{
		{"edge", Descriptor{{"key", "abc"}}, "exact"},
		{"edge", Descriptor{{"key", "abd"}}, "longer"},
		{"edge", Descriptor{{"key", "acd"}}, "prefix"},
		{"edge", Descriptor{{"key", "z"}}, "any"},
		{"edge", Descriptor{{"key", ""}}, "any"},
		{"edge", Descriptor{{"path", "/x"}, {"key", "abc"}}, "two"},
		{"edge", Descriptor{{"key", "abc"}, {"path", "/y"}}, "any two"},
		{"edge", Descriptor{{"path", "/x"}}, ""},
		{"edge", Descriptor{{"key", "a"}, {"path", "/x"}, {"more", "z"}}, ""},
		{"edge", Descriptor{{"key", "a"}, {"key", "b"}}, ""},
		{"edge", nil, ""},
		{"other", Descriptor{{"key", "abc"}}, "elsewhere"},
		{"none", Descriptor{{"key", "abc"}}, ""},
	} {
		if got, _ := d.Find(test.domain, test.of); got != test.want {
			t.Errorf("%s %v: %q, want %q", test.domain, test.of, got, test.want)
		}
	}
}

// Whatever the patterns are, those are found that a comparison with each of them finds.
func TestDescriptors_FindWhatAComparisonFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	for range 300 {
		var entries []DescriptorEntry[string]
		for i := range 1 + random.IntN(20) {
			e := DescriptorEntry[string]{one("edge", "core"), map[string]string{}, fmt.Sprint(i)}
			for range 1 + random.IntN(3) {
				e.Entries[one("a", "b", "ab", "c")] = one("", "x", "xy", "xyz", "y", "*", "x*", "xy*", "y*")
			}
			entries = append(entries, e)
		}
		d := NewDescriptors(entries)
		for range 50 {
			of := Descriptor{}
			for range random.IntN(4) {
				of = append(of, DescriptorField{one("a", "b", "ab", "c"), one("", "x", "xy", "xyz", "xyzz", "y", "z", "*", strings.Repeat("x", 300))})
			}
			domain := one("edge", "core", "none")
			if got, _ := d.Find(domain, of); got != compareEach(entries, domain, of) {
				t.Fatalf("%s %v of %v: %q, want %q", domain, of, entries, got, compareEach(entries, domain, of))
			}
		}
	}
}

// compareEach returns the value of the most specific of entries that matches a descriptor.
func compareEach(entries []DescriptorEntry[string], domain string, of Descriptor) (value string) {
	best := []int{-1}
	for _, e := range entries {
		specificity := []int{0, 0}
		matches := e.Domain == domain && len(of) == len(e.Entries)
		for i, f := range of {
			want, has := e.Entries[f.Key]
			prefix, open := strings.CutSuffix(want, "*")
			if open {
				specificity[1] += len(prefix)
			} else {
				specificity[0]++
			}
			matches = matches && has && (f.Value == want || open && strings.HasPrefix(f.Value, prefix)) &&
				!slices.ContainsFunc(of[:i], func(o DescriptorField) bool { return o.Key == f.Key })
		}
		if matches && cmp.Or(cmp.Compare(specificity[0], best[0]), cmp.Compare(specificity[1], best[len(best)-1])) > 0 {
			value, best = e.Value, specificity
		}
	}
	return value
}

// A search allocates nothing, and takes as long with thousands of patterns of one shape as with one.
func TestDescriptors_FindWithoutAllocations(t *testing.T) {
	var entries []DescriptorEntry[int]
	for i := range 5_000 {
		entries = append(entries, DescriptorEntry[int]{"edge", map[string]string{"generic_key": fmt.Sprint(i), "phone": "*"}, i})
	}
	d := NewDescriptors(entries)
	if n := len(d.byKeys); n != 1 {
		t.Fatalf("%d sets of keys, want 1", n)
	}
	for _, shapes := range d.byKeys {
		if len(shapes) != 1 {
			t.Errorf("%d shapes, want 1", len(shapes))
		}
	}
	of := Descriptor{{"phone", "+4915112345678"}, {"generic_key", "4711"}}
	if n := rounds.Allocations(100, func() {
		if got, _ := d.Find("edge", of); got != 4711 {
			t.Errorf("%d, want 4711", got)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
