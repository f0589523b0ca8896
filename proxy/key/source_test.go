package key

import (
	"slices"
	"testing"
)

// Each source has a name that is parsed back. Sources that are confused with each other
// say so of each other, and what is in the body takes long to read.
func TestSource_Traits(t *testing.T) {
	for s := Header; s < numSources; s++ {
		if s.String() == "" || sourceOf(s.String()) != s {
			t.Errorf("source %d has the name %q", s, s)
		}
		other, ok := Origin{s, "x"}.Confused()
		if back, _ := other.Confused(); ok && back != (Origin{s, "x"}) {
			t.Errorf("%s is confused with %s, and that with %s", s, other, back)
		}
		if s.IsBody() && !s.IsCostly() || s.IsLogged() && !s.IsNamed() || s.IsSpelled() && !s.IsNamed() || s.IsAddress() && s.IsNamed() {
			t.Errorf("the traits of %s contradict each other", s)
		}
	}
	var none Source
	if none.String() != "" || sourceOf("") != none || none.IsNamed() || none.IsConstant() {
		t.Error("no source has traits")
	}
}

func TestOrigin_Fields(t *testing.T) {
	for origin, want := range map[string][]string{
		"header:x-phone": {"X-Phone"}, "cookie:sid": {"Cookie"}, "jwt:sub": {"Authorization"}, "json:/a": {"Content-Type", "Content-Encoding"},
		"form:a": {"Content-Type", "Content-Encoding"}, "query:a": nil, "path:a": nil, "client_ip": nil, "host": nil, "method": nil, "global": nil,
	} {
		o, err := ParseOrigin(origin)
		if err != nil || !slices.Equal(o.Fields(), want) {
			t.Errorf("%s: %q, %v; want %q", origin, o.Fields(), err, want)
		}
	}
	if HeaderField("X-A").String() != "header:X-A" || PathParameter("id").String() != "path:id" {
		t.Errorf("%s, %s", HeaderField("X-A"), PathParameter("id"))
	}
}
