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
