package route

import (
	"errors"
	"net/url"
	"path"
	"strings"
	"testing"
)

func TestNormalizePath_OneSpelling(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"/", "/"},
		{"/v1/sms/send", "/v1/sms/send"},
		{"/v1/sms/send/", "/v1/sms/send/"},
		{"//v1//sms///send", "/v1/sms/send"},
		{"/v1/./sms/send", "/v1/sms/send"},
		{"/v1/x/../sms/send", "/v1/sms/send"},
		{"/v1/x/%2e%2E/sms/send", "/v1/sms/send"},
		{"/../../v1", "/v1"},
		{"/v1/sms/send/.", "/v1/sms/send/"},
		{"/v1/sms/send/..", "/v1/sms/"},
		{"/..", "/"},
		{"/%76%31/s%6ds/send", "/v1/sms/send"},
		{"/a%2bb", "/a+b"},
		{"/a%7eb", "/a~b"},
		{"/a b", "/a%20b"},
		{"/a%c3%b6", "/a%C3%B6"},
		{"/a\xc3\xb6", "/a%C3%B6"},
		{"/.well-known/x", "/.well-known/x"},
		{"/a;v=1/b", "/a;v=1/b"},
		{"/a%3bv", "/a%3Bv"},
		{"/a%25b", "/a%25b"},
		{"/a%252fb", "/a%252fb"},
		{"/a%2fb/../c%2Fd", "/c%2Fd"},
		{"/%3f", "/%3F"},
		{"/a/*", "/a/*"},
	} {
		got, err := normalizePath(c.in)
		if err != nil || got != c.want {
			t.Errorf("normalizePath(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

func TestNormalizePath_RefusesWhatServersReadDifferently(t *testing.T) {
	for _, in := range []string{"", "*", "v1", "/a/..%2fb", "/.%2F", "/a\\b", "/a%5cb", "/a%00b", "/a\x00b", "/a\nb", "/a%0ab", "/a\x7f", "/a%", "/a%2", "/a%zz"} {
		if got, err := normalizePath(in); !errors.Is(err, ErrTarget) {
			t.Errorf("normalizePath(%q) = %q, %v; want ErrTarget", in, got, err)
		}
	}
}

// Every short path of some characters: one that is normalized stays as it is.
func TestNormalizePath_NormalizedPathsStay(t *testing.T) {
	paths := []string{"/"}
	for from := 0; len(paths[from]) < 6; from++ {
		for _, c := range "aZ./;%~\\" {
			paths = append(paths, paths[from]+string(c))
		}
	}
	for _, path := range paths {
		if !isNormalized(path) {
			continue
		}
		if spelled, err := matchedSpelling.normalize(path); err != nil || removeDotSegments(mergeSlashes(spelled)) != path {
			t.Errorf("%q is normalized to %q, %v", path, spelled, err)
		}
	}
}

func FuzzNormalizePath(f *testing.F) {
	for _, s := range []string{"/", "/a/../b", "/%2e%2e/a", "//a", "/a%2fb", "/\xff", "/.", "/a/..;/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := normalizePath(in)
		if err != nil {
			return
		}
		if again, err := normalizePath(got); err != nil || again != got {
			t.Fatalf("normalizePath(%q) = %q, but normalizePath of that = %q, %v", in, got, again, err)
		}
		plain, err := url.PathUnescape(got)
		if err != nil {
			t.Fatalf("normalizePath(%q) = %q, which does not decode: %v", in, got, err)
		}
		if clean := path.Clean(plain); !strings.Contains(got, escapedSlash) && strings.TrimSuffix(plain, "/") != strings.TrimSuffix(clean, "/") {
			t.Fatalf("normalizePath(%q) = %q, which a server would clean to %q", in, got, clean)
		}
		u, err := url.ParseRequestURI(got)
		if err != nil || u.EscapedPath() != got {
			t.Fatalf("normalizePath(%q) = %q, which net/url writes as %v, %v", in, got, u, err)
		}
	})
}

// normalized is the target of a request that was sent so.
func normalized(sent RawTarget) (Target, error) {
	q := Request{RawTarget: sent}
	err := q.Normalize()
	return q.Target, err
}

func TestNormalize_OptionsStarIsItsOwnTarget(t *testing.T) {
	for method, ok := range map[string]bool{"OPTIONS": true, "GET": false} {
		if got, err := normalized(RawTarget{Method: method, HostField: "a", RequestTarget: "*"}); (err == nil) != ok || ok && got.Path != "*" {
			t.Errorf("Normalize(%s *) = %+v, %v; want ok %v", method, got, err, ok)
		}
	}
}

func TestNormalize_Refuses(t *testing.T) {
	for name, c := range map[string]struct {
		RawTarget
		want error
	}{
		"a tunnel":            {RawTarget{Method: "CONNECT", HostField: "a:1", RequestTarget: "/"}, ErrTunnel},
		"a long target":       {RawTarget{Method: "GET", HostField: "a", RequestTarget: "/" + strings.Repeat("a", maxTarget)}, ErrTargetTooLong},
		"a blank in the host": {RawTarget{Method: "GET", HostField: "a b", RequestTarget: "/"}, ErrTarget},
		"no host":             {RawTarget{Method: "GET", Proto: "HTTP/1.1", RequestTarget: "/", Local: "10.0.0.1:80"}, ErrTarget},
		"a fragment":          {RawTarget{Method: "GET", HostField: "a", RequestTarget: "/a?user=v#1"}, ErrTarget},
		"another scheme":      {RawTarget{Method: "GET", HostField: "a", RequestTarget: "ftp://b/x"}, ErrTarget},
		"https in clear text": {RawTarget{Method: "GET", HostField: "a", RequestTarget: "https://b/x"}, ErrTarget},
		"an empty authority":  {RawTarget{Method: "GET", HostField: "a", RequestTarget: "http:///x"}, ErrTarget},
	} {
		if got, err := normalized(c.RawTarget); !errors.Is(err, c.want) || got.Path != "" {
			t.Errorf("%s: %+v, %v; want %v", name, got, err, c.want)
		}
	}
}

func TestNormalize_TakesTargetsApart(t *testing.T) {
	for name, c := range map[string]struct {
		sent RawTarget
		want Target
	}{
		"origin form":       {RawTarget{HostField: "A:80", RequestTarget: "/%61/?b=%63"}, Target{"A:80", "/%61/", "b=%63", "a", "/a/", ""}},
		"absolute form":     {RawTarget{HostField: "a", RequestTarget: "http://B.example:81/x?y"}, Target{"B.example:81", "/x", "y", "b.example", "/x", ""}},
		"no path":           {RawTarget{HostField: "a", RequestTarget: "http://b?y"}, Target{"b", "/", "y", "b", "/", ""}},
		"https of a proxy":  {RawTarget{HostField: "a", RequestTarget: "https://b/", HTTPS: true}, Target{"b", "/", "", "b", "/", ""}},
		"OPTIONS of a host": {RawTarget{Method: "OPTIONS", HostField: "a", RequestTarget: "http://b"}, Target{"b", "*", "", "b", "*", ""}},
		"HTTP/1.0":          {RawTarget{Proto: "HTTP/1.0", RequestTarget: "/x", Local: "10.0.0.1:80"}, Target{"10.0.0.1:80", "/x", "", "10.0.0.1", "/x", ""}},
	} {
		if got, err := normalized(c.sent); got != c.want || err != nil {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

// Every short target of some characters: one pass over it finds what the plain rules find.
func TestTarget_ParsePlainAgreesWithParse(t *testing.T) {
	plain := 0
	targets := []string{""}
	for from := 0; len(targets[from]) < 5; from++ {
		for _, c := range []byte("aZ/.;?#%\x00\xc3") {
			targets = append(targets, targets[from]+string([]byte{c}))
		}
	}
	for _, s := range targets {
		var one, two Target
		isPlain := one.parsePlain(s)
		if isPlain {
			plain++
		} else if one != (Target{}) {
			t.Fatalf("parsePlain(%q) set %+v, but reports false", s, one)
		}
		two.Authority = "a"
		err := two.parse(&RawTarget{RequestTarget: s})
		path := ""
		if err == nil {
			path, err = normalizePath(two.SentPath)
		}
		want := err == nil && s[0] == '/' && path == two.SentPath && !strings.Contains(path, "/.")
		if isPlain != want || isPlain && (one.SentPath != two.SentPath || one.RawQuery != two.RawQuery) {
			t.Fatalf("parsePlain(%q) = %v with %q and %q; want %v with %q and %q", s, isPlain, one.SentPath, one.RawQuery, want, two.SentPath, two.RawQuery)
		}
	}
	if plain < 1000 {
		t.Errorf("%d targets are plain; want more", plain)
	}
}

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
