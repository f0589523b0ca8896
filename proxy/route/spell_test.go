package route

import (
	"net/url"
	"strings"
	"testing"
)

// forwardedPath returns what is found for a path, and the path that is forwarded.
func forwardedPath(t *testing.T, tb *Table[string], line string) (found, path string) {
	t.Helper()
	method, target, _ := strings.Cut(line, " ")
	q := &Request{RawTarget: RawTarget{Method: method, HostField: "a", RequestTarget: target}, Message: &testMessage{}}
	if err := q.Normalize(); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	found, err := tb.Find(q)
	if err != nil {
		return "", ""
	}
	for name, value := range q.Params() {
		found += " " + name + "=" + value
	}
	return found, q.Forwarded
}

// Some upstreams route before they decode: grpc-gateway cuts items:list at the colon, others compare bytes. By what
// they receive they do not find a guarded entry that the request was not counted for.
func TestSpell_NoWayAroundAGuardedEntry(t *testing.T) {
	tb := NewTable([]Entry[string]{
		{Pattern{Path: "/v1/items:list", KeepsRepeats: true}, "list"},
		{Pattern{Path: "/v1/{item}", Methods: []string{"GET"}, Keys: []string{"item"}, Guarded: true}, "item"},
		{Pattern{Path: "/v1/items:send", Guarded: true}, "send"},
		{Pattern{Path: "/a/{x}/send", Keys: []string{"x"}, Guarded: true}, "a"},
		{Pattern{Path: "/a/*", KeepsRepeats: true}, "as"},
		{Pattern{Path: "/u/{id}/*", Keys: []string{"id"}, KeepsRepeats: true, Guarded: true}, "user"},
		{Pattern{Path: "/open/{x}"}, "x"},
		{Pattern{Path: "/open/a=b"}, "ab"},
		{Pattern{Path: "/*", KeepsRepeats: true}, "rest"},
	})
	for line, want := range map[string]string{
		"GET /v1/items%3Alist":  "list /v1/items:list",
		"HEAD /v1/items%3Alist": "list /v1/items:list",
		"get /v1/items%3alist":  "list /v1/items:list",
		"POST /v1/items%3Alist": "list /v1/items%3Alist",
		"GET /V1/items%3Alist":  "rest *=V1/items:list /V1/items:list",
		"GET /v1/items%3Asend":  "send /v1/items:send",
		"GET /v1/a%3Ab":         "item item=a:b /v1/a%3Ab",
		"GET /open/a%3Db":       "ab /open/a%3Db",
		"GET /open/c%3Db":       "x x=c=b /open/c%3Db",
		"GET /a//send":          "as *=send /a/send",
		"GET /a/b//send":        "a x=b /a/b/send",
		"GET /u/1//x%40":        "user id=1 *=x@ /u/1//x%40",
		"GET /u//1/x":           "user id=1 *=x /u/1/x",
		"GET //u/1/x":           "user id=1 *=x /u/1/x",
		"GET /r//..//x":         "rest *=x /x",
		"GET /r/..//x":          "rest *=x /x",
		"GET /r/s//..//x":       "rest *=r/x /r/x",
		"GET /r/s/..//x":        "rest *=r/x /r//x",
	} {
		if found, path := forwardedPath(t, tb, line); found+" "+path != want {
			t.Errorf("%s: %q, and %q is forwarded; want %q", line, found, path, want)
		}
	}
}

// What is forwarded means what is matched, to servers that decode and merge.
func FuzzSpell(f *testing.F) {
	for _, s := range []string{"/", "/a%2Bb%3D/..%40", "//a%2F", "/a//../b", "/%2e%2E//%2525", "/u//x;y%3B", "/a%00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		spell(t, in, Pattern{KeepsSlashes: true})
		spell(t, in, Pattern{KeepsSlashes: true, KeepsRepeats: true})
	})
}

// spell checks what is forwarded for a path of patterns like this one.
func spell(t *testing.T, in string, like Pattern) {
	t.Helper()
	user, rest := like, like
	user.Path, user.Guarded, rest.Path = "/u/{id}", true, "/*"
	tb := NewTable([]Entry[string]{{user, "u"}, {rest, "rest"}})

	q := &Request{RawTarget: RawTarget{Method: "GET", HostField: "a", RequestTarget: in}, Message: &testMessage{}}
	if q.Normalize() != nil {
		return
	}
	found, err := tb.Find(q)
	if err != nil {
		return
	}
	if again, err := normalizePath(q.Forwarded); err != nil || again != q.Path || strings.HasPrefix(q.Forwarded, "//") {
		t.Fatalf("%q is matched as %q and forwarded as %q: %v", in, q.Path, q.Forwarded, err)
	}
	if !like.KeepsRepeats && strings.Contains(q.Forwarded, "//") {
		t.Fatalf("%q is forwarded as %q", in, q.Forwarded)
	}
	one, _ := url.PathUnescape(q.Path)
	if two, err := url.PathUnescape(q.Forwarded); err != nil || mergeSlashes(two) != mergeSlashes(one) {
		t.Fatalf("%q is matched as %q and forwarded as %q, which is %q decoded: %v", in, one, q.Forwarded, two, err)
	}
	p := &Request{RawTarget: RawTarget{Method: "GET", HostField: "a", RequestTarget: q.Forwarded}, Message: &testMessage{}}
	if err := p.Normalize(); err != nil {
		t.Fatal(err)
	}
	if other, err := tb.Find(p); other != found || err != nil || p.Forwarded != q.Forwarded {
		t.Fatalf("%q is forwarded as %q, which finds %q and not %q, and is forwarded as %q: %v", in, q.Forwarded, other, found, p.Forwarded, err)
	}
}
