package route

import (
	"errors"
	"strings"
	"testing"
)

// A path that a forgiving server takes for that of another pattern, or for another
// key of its own, is refused; others are found as they are.
func TestLenient_PathsOfOthersAreRefused(t *testing.T) {
	tb := NewTable([]Entry[string]{
		{Pattern{Path: "/v1/send", Guarded: true}, "send"},
		{Pattern{Path: "/u/{id}", Keys: []string{"id"}, Guarded: true}, "user"},
		{Pattern{Path: "/f/*"}, "file"},
		{Pattern{Path: "/*"}, "rest"},
	})
	for path, want := range map[string]string{
		"/v1/send;x=1": "", "/v1;x/send": "", "/v1/%2573end": "", "/v1%C0%AFsend": "", "/v1%E0%80%AFsend": "", "/%C0%AE%C0%AE/v1/send": "", "/v1/%E0%80%AE/send": "", "/v1/send%20": "", "/v1/send%23": "", "/v1/send%3F": "",
		"/v1/send%253B": "", "/v1./send": "", "/v1/send.": "", "/f/a.": "file", "/%252e%252e/v1/send": "", "/v1/send%255c": "",
		"/u/alice": "user", "/u/alice;x": "", "/u/alice%253Bx": "", "/u/a%20b": "user", "/u/%2B1": "user", "/u/alice%40example.com": "user",
		"/f/a;b=1": "file", "/f/a%20b.txt": "file", "/f/100%25": "file", "/f/%E4%BD%A0": "file", "/other;x": "rest", "/v1/sender;x": "rest",
	} {
		target, err := normalized(RawTarget{Method: "GET", HostField: "a", RequestTarget: path})
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		found, err := tb.Find(newRequest("GET", target.Host, target.Path))
		if want == "" && !errors.Is(err, ErrTarget) || want != "" && (found != want || err != nil) {
			t.Errorf("%s: %q, %v; want %q, or ErrTarget for none", path, found, err, want)
		}
	}
}

// A path is read alike if and only if nothing in it is read in another way. Every short
// path of some characters, as far as it is normalized.
func TestLenient_PathsThatAreReadAlike(t *testing.T) {
	paths := []string{"/"}
	for from := 0; len(paths[from]) < 7; from++ {
		for _, c := range "a./;%" {
			paths = append(paths, paths[from]+string(c))
		}
	}
	for _, path := range paths {
		special := strings.ContainsAny(path, ";%") || strings.Contains(path, "./") || strings.HasSuffix(path, ".")
		if isReadAlike(path) == special {
			t.Errorf("isReadAlike(%q) = %t", path, !special)
		}
		if special || !isNormalized(path) {
			continue
		}
		if read, err := lenientPath(path); read != path || err != nil {
			t.Errorf("%q is read as %q, %v", path, read, err)
		}
	}
}

// A server that cuts a format off the path reads no other key than the pattern does.
func TestFind_FormatSuffix(t *testing.T) {
	tb := NewTable([]Entry[string]{
		{Pattern{Path: "/plain/{id}", Keys: []string{"id"}, EndsInKey: true, Guarded: true}, "plain"},
		{Pattern{Path: "/plain/me.json", Guarded: true}, "me"},
		{Pattern{Path: "/plain/{id}/{name}", Keys: []string{"id"}, Guarded: true}, "name"},
		{Pattern{Path: "/number/{id:^(?:[0-9]+)$}", Methods: []string{"GET"}, Keys: []string{"id"}, EndsInKey: true, Guarded: true}, "number"},
		{Pattern{Path: "/dotted/{id:^(?:[^/]+)$}", Keys: []string{"id"}, EndsInKey: true, Guarded: true}, "dotted"},
		{Pattern{Path: "/script/{name:^(?:[a-z.]+)$}"}, "script"},
		{Pattern{Path: "/script/{id:^(?:[a-z]+)$}/", Keys: []string{"id"}, EndsInKey: true, Guarded: true}, "id"},
		{Pattern{Path: "/*"}, "rest"},
	})
	for line, want := range map[string]string{
		"GET /plain/7": "plain", "GET /plain/7.json": "", "GET /plain/7.": "", "GET /plain/.json": "", "GET /plain/7.json/": "", "GET /Plain/7.a1": "",
		"GET /plain/me.json": "me", "GET /plain/7.1/x": "name", "GET /plain/7/x.json": "name",
		"GET /number/7": "number", "GET /number/7.json": "", "HEAD /number/7.json": "", "GET /NUMBER/7.a.b": "", "POST /number/7.json": "rest", "GET /number/x.json": "rest", "GET /number/7.json/x": "rest",
		"GET /dotted/7.json": "dotted", "GET /script/app.js": "script", "GET /script/app.js/": "", "GET /other/app.js": "rest",
	} {
		method, path, _ := strings.Cut(line, " ")
		q := newRequest(method, "a", path)
		found, err := tb.Find(q)
		if want == "" && !errors.Is(err, ErrTarget) || want != "" && (found != want || err != nil) {
			t.Errorf("%s: %q, %v; want %q, or ErrTarget for none", line, found, err, want)
		}
		if id := q.Param("id"); found == "dotted" && id != "7.json" {
			t.Errorf("%s: id %q", line, id)
		}
	}
}

// A slash that is escaped is part of a segment where the pattern keeps it, and refused
// elsewhere.
func TestFind_EncodedSlash(t *testing.T) {
	tb := NewTable([]Entry[string]{
		{Pattern{Path: "/projects/{id}/x", Keys: []string{"id"}, KeepsSlashes: true}, "kept"},
		{Pattern{Path: "/*"}, "rest"},
	})
	q := newRequest("GET", "a", "/projects/a%2Fb/x")
	if found, err := tb.Find(q); found != "kept" || q.Param("id") != "a/b" || err != nil {
		t.Errorf("%q with id %q, %v; want kept with a/b", found, q.Param("id"), err)
	}
	for _, path := range []string{"/a%2Fb", "/projects/a%2Fb/y", "/projects/a%2Fb;1/x"} {
		if found, err := tb.Find(newRequest("GET", "a", path)); !errors.Is(err, ErrTarget) {
			t.Errorf("%s: %q, %v; want ErrTarget", path, found, err)
		}
	}
}
