package proxy

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/weir-proxy/weir/proxy/key"
)

// However the body of a replayed request is made, it says what its fields say.
func TestLoggedBody(t *testing.T) {
	field := func(source key.Source, name, value string) LoggedField {
		return LoggedField{Origin: key.Origin{Source: source, Name: name}, Value: value}
	}
	var body literalBody
	for _, c := range []struct {
		fields []LoggedField
		want   string // as JSON, unless it is a form
	}{
		{nil, ""},
		{[]LoggedField{field(key.JSON, "/phone", ""), field(key.Header, "X-Phone", "1")}, ""},
		{[]LoggedField{field(key.JSON, "/phone", "+8613800138000")}, `{"phone":"+8613800138000"}`},
		{[]LoggedField{field(key.JSON, "/phone", "1"), field(key.JSON, "/user", "ann")}, `{"phone":"1","user":"ann"}`},
		{[]LoggedField{field(key.JSON, "/phone", "1"), field(key.JSON, "/phone", "2"), field(key.JSON, "/phone", "")}, `{"phone":"2"}`},
		{[]LoggedField{field(key.JSON, "/name", "a\"b\\c\n<é\x7f")}, "{\"name\":\"a\\\"b\\\\c\\n<é\x7f\"}"},
		{[]LoggedField{field(key.JSON, "/ü", "1")}, `{"ü":"1"}`},
		{[]LoggedField{field(key.JSON, "/", "1")}, `{"":"1"}`},
		{[]LoggedField{field(key.JSON, "/user/phone", "1"), field(key.JSON, "/user/id", "2"), field(key.JSON, "/a~1b", "3")}, `{"user":{"phone":"1","id":"2"},"a/b":"3"}`},
		{[]LoggedField{field(key.Form, "phone", "+86 1"), field(key.Form, "a", "b")}, "a=b&phone=%2B86+1"},
		{[]LoggedField{field(key.Form, "phone", "1"), field(key.JSON, "/phone", "2")}, `{"phone":"2"}`},
	} {
		body = body.build(c.fields) // of the bytes of the one before
		var got, want any
		if c.want == "" || c.want[0] != '{' {
			got, want = string(body), c.want
		} else if err := json.Unmarshal(body, &got); err != nil || json.Unmarshal([]byte(c.want), &want) != nil {
			t.Errorf("%v: %q: %v", c.fields, body, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %q; want %s", c.fields, body, c.want)
		}
	}
}
