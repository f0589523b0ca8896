package proxy

import (
	"errors"
	"net/url"
	"path"
	"strings"
	"testing"
)

func TestTidyPath_OneSpelling(t *testing.T) {
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
		got, err := tidyPath(c.in)
		if err != nil || got != c.want {
			t.Errorf("tidyPath(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

func TestTidyPath_RefusesWhatServersReadDifferently(t *testing.T) {
	for _, in := range []string{"", "*", "v1", "/a/..%2fb", "/.%2F", "/a\\b", "/a%5cb", "/a%00b", "/a\x00b", "/a\nb", "/a%0ab", "/a\x7f", "/a%", "/a%2", "/a%zz"} {
		if got, err := tidyPath(in); !errors.Is(err, errTarget) {
			t.Errorf("tidyPath(%q) = %q, %v; want errTarget", in, got, err)
		}
	}
}

func FuzzTidyPath(f *testing.F) {
	for _, s := range []string{"/", "/a/../b", "/%2e%2e/a", "//a", "/a%2fb", "/\xff", "/.", "/a/..;/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := tidyPath(in)
		if err != nil {
			return
		}
		if again, err := tidyPath(got); err != nil || again != got {
			t.Fatalf("tidyPath(%q) = %q, but tidyPath of that = %q, %v", in, got, again, err)
		}
		plain, err := url.PathUnescape(got)
		if err != nil {
			t.Fatalf("tidyPath(%q) = %q, which does not decode: %v", in, got, err)
		}
		if clean := path.Clean(plain); !strings.Contains(got, slash) && strings.TrimSuffix(plain, "/") != strings.TrimSuffix(clean, "/") {
			t.Fatalf("tidyPath(%q) = %q, which a server would clean to %q", in, got, clean)
		}
		u, err := url.ParseRequestURI(got)
		if err != nil || u.EscapedPath() != got {
			t.Fatalf("tidyPath(%q) = %q, which net/url writes as %v, %v", in, got, u, err)
		}
	})
}

func TestTidy_OptionsStarIsItsOwnTarget(t *testing.T) {
	for method, ok := range map[string]bool{"OPTIONS": true, "GET": false} {
		x := &exchange{method: method, authority: "a", target: "*"}
		if err := tidy(x); (err == nil) != ok {
			t.Errorf("tidy(%s *) = %v; want ok %v", method, err, ok)
		}
	}
}

func TestTidy_RefusesTunnels(t *testing.T) {
	if err := tidy(&exchange{method: "CONNECT", authority: "a:1", target: "/"}); !errors.Is(err, errTunnel) {
		t.Errorf("tidy of CONNECT = %v; want errTunnel", err)
	}
}

func TestTidy_RefusesBadHost(t *testing.T) {
	if err := tidy(&exchange{method: "GET", authority: "a b", target: "/"}); !errors.Is(err, errTarget) {
		t.Errorf("tidy with a blank in the host = %v; want errTarget", err)
	}
}
