package key

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestExtract_JSON(t *testing.T) {
	for _, c := range []struct {
		pointer, body string
		want          string // "" for the error
		err           error
	}{
		{"/phone", `{"phone":"1"}`, "1", nil},
		{"/phone", ` { "a" : [ {} ] , "phone" : "1" } `, "1", nil},
		{"/user/phone", `{"user":{"name":"x","phone":"1"},"phone":"2"}`, "1", nil},
		{"/to/1/phone", `{"to":[{"phone":"1"},{"phone":"2"}]}`, "2", nil},
		{"/0", `["1"]`, "1", nil},
		{"/a~1b", `{"a/b":"1"}`, "1", nil},
		{"/a~0b", `{"a~b":"1"}`, "1", nil},
		{"/a~01b", `{"a~1b":"1"}`, "1", nil},
		{"/", `{"":"1"}`, "1", nil},
		{"/0", `{"0":"1"}`, "1", nil},
		{"/phone", `{"phon\u0065":"\u0031"}`, "1", nil},
		{"/phone", `{"phone":"\u00e4\ud83d\ude00"}`, "ä😀", nil},
		{"/phone", `{}`, "", ErrMissing},
		{"/phone", ``, "", ErrMissing},
		{"/phone", `{"phone":""}`, "", ErrMissing},
		{"/phone", `"phone"`, "", ErrMissing},
		{"/phone", `[{"phone":"1"}]`, "", ErrMissing},
		{"/user/phone", `{"user":"x"}`, "", ErrMissing},
		{"/01", `["0","1"]`, "", ErrMissing},
		{"/-", `["0","1"]`, "", ErrMissing},
		{"/2", `["0","1"]`, "", ErrMissing},
		{"/99999999999999999999", `["0"]`, "", ErrMissing},
		{"/phone", `{"phone":["1"]}`, "", ErrInvalid},
		{"/phone", `{"phone":{"a":"1"}}`, "", ErrInvalid},
		{"/phone", `{"phone":"1","phone":"2"}`, "", ErrAmbiguous},
		{"/phone", `{"phone":"1","phon\u0065":"2"}`, "", ErrAmbiguous},
		{"/phone", `{"phone":"1","Phone":"2"}`, "", ErrAmbiguous},
		{"/phone", `{"PHONE":"2"}`, "", ErrAmbiguous},
		{"/key", `{"` + "\u212a" + `ey":"2"}`, "", ErrAmbiguous}, // the sign of the kelvin is a k
		{"/user/phone", `{"User":{"phone":"1"}}`, "", ErrAmbiguous},
		{"/phone", `{"phone":"1","x":{"a":1,"a":2}}`, "", ErrAmbiguous},
		{"/phone", `{"phone":"1"}{"phone":"2"}`, "", ErrAmbiguous},
		{"/phone", `{"phone":"1"} x`, "", ErrAmbiguous},
		{"/phone", `{"phone":"1"`, "", ErrAmbiguous},
		{"/phone", `{"phone":"1",}`, "", ErrAmbiguous},
		{"/phone", `{"phone":"1" "x":1}`, "", ErrAmbiguous},
		{"/phone", `{phone:"1"}`, "", ErrAmbiguous},
		{"/phone", `{'phone':'1'}`, "", ErrAmbiguous},
		{"/phone", `{"phone":"1"/* x */}`, "", ErrAmbiguous},
		{"/phone", `{"phone":"1","x":NaN}`, "", ErrAmbiguous},
		{"/phone", `{"phone":01}`, "", ErrAmbiguous},
		{"/phone", `{"phone":"\ud800"}`, "", ErrAmbiguous},
		{"/phone", `{"phone":"1","x":"\ud800"}`, "", ErrAmbiguous},
		{"/phone", "{\"phone\":\"1\xff\"}", "", ErrAmbiguous},
		{"/phone", "{\"phone\":\"1\",\"x\":\"\xff\"}", "", ErrAmbiguous},
		{"/phone", "{\"phone\":\"1\n2\"}", "", ErrAmbiguous},
		{"/phone", "\ufeff{\"phone\":\"1\"}", "1", nil}, // a byte order mark
		{"/phone", "\ufeff\ufeff{\"phone\":\"1\"}", "", ErrAmbiguous},
		{"/phone", " \ufeff{\"phone\":\"1\"}", "", ErrAmbiguous},
		{"/phone", "{\ufeff\"phone\":\"1\"}", "", ErrAmbiguous},
		{"/phone", "\ufeff", "", ErrAmbiguous},
		{"/phone", `{"phone":"1","x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "", ErrAmbiguous},
		{"/phone", strings.Repeat(`[`, 100000), "", ErrMissing},
		{"/phone", `{"phone":` + strings.Repeat("9", 100) + `}`, "", ErrAmbiguous},
		{"/phone", `{"phone":1e999}`, "", ErrAmbiguous},
		{"/phone", `{"phone":true}`, "", ErrAmbiguous},
		{"/phone", `{"phone":false}`, "", ErrAmbiguous},
	} {
		got, err := extract(of("json:"+c.pointer), sendsJSON(c.body))
		if strings.HasPrefix(c.body, "[[[") {
			c.err = ErrAmbiguous
		}
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s of %.60q = %q, %v; want %q, %v", c.pointer, c.body, got, err, c.want, c.err)
		}
		secretless(t, err, `"1"`, `"2"`)
	}
}

func TestExtract_JSONDepth(t *testing.T) {
	for depth, want := range map[int]error{maxDepth - 1: nil, maxDepth: nil, maxDepth + 1: ErrAmbiguous} {
		pointer, body := "json:"+strings.Repeat("/a", depth), strings.Repeat(`{"a":`, depth)+`"1"`+strings.Repeat("}", depth)
		if _, err := extract(of(pointer), sendsJSON(body)); !errors.Is(err, want) {
			t.Errorf("along the pointer, depth %d = %v; want %v", depth, err, want)
		}
		body = `{"x":"1","y":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}`
		if _, err := extract(of("json:/x"), sendsJSON(body)); !errors.Is(err, want) {
			t.Errorf("beside the pointer, depth %d = %v; want %v", depth, err, want)
		}
	}
}

func TestExtract_JSONNumbersAndStringsAreOneKey(t *testing.T) {
	keyOf := func(value string) string {
		var v Value
		if err := of("json:/a").Extract(sendsJSON(`{"a":`+value+`}`), &v); err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		return Hash("", v.Parts).String()
	}
	for _, n := range []string{"0", "1", "42", "-7", "13800138000", "9007199254740991", "-9007199254740991"} {
		if keyOf(n) != keyOf(`"`+n+`"`) {
			t.Errorf("the number %s and its string are two keys", n)
		}
	}
	if keyOf("null") == keyOf(`"null"`) {
		t.Error("null and its string are one key")
	}
}

// Python writes 1.0 for 1e0, Java 1.0E10 for 1e10, JavaScript 1 for 1.0 and loses what
// is beyond 2^53.
func TestExtract_JSONNumbersThatAreNotPlain(t *testing.T) {
	for _, n := range []string{
		"-0", "0.0", "1.0", "13800138000.0", "13800138000.5", "13800138000e0", "13800138000E+0", "1.3800138e10", "138001380000e-1", "42.000000000000000000001",
		"9007199254740992", "9007199254740993", "-9007199254740992", "18446744073709551615", "99999999999999999999", "1e400",
	} {
		for _, s := range []*Spec{of("json:/a"), of("json:/a", Digits), of("json:/a", Trim), phoneAt(t, "json:/a")} {
			if got, err := extract(s, sendsJSON(`{"a":`+n+`}`)); !errors.Is(err, ErrAmbiguous) {
				t.Errorf("%s normalized by %v = %q, %v; want ErrAmbiguous", n, s.Normalize, got, err)
			}
		}
	}
}

func TestNumeralText_OneNumberOneSpelling(t *testing.T) {
	for want, all := range map[string][]string{
		"0":                       {"0", "-0", "0.0", "0e5", "0e-5", "-0.0e+9", "1e-999", "-1e-999", "0e63"},
		"1":                       {"1", "1.0", "1e0", "10e-1", "0.1e1", "1.00000000000000000001", "100000000000e-11", "1E+0"},
		"-12":                     {"-12", "-12.0", "-1.2e1", "-120e-1"},
		"100":                     {"100", "1e2", "1.0e2", "1E2", "1000e-1"},
		"0.5":                     {"0.5", "5e-1", "0.50", "50e-2"},
		"9007199254740993":        {"9007199254740993", "9007199254740993.0", "9.007199254740993e15"},
		"18446744073709551615":    {"18446744073709551615", "18446744073709551615.000"},
		"10000000000000000000000": {"1e22", "10000000000000000000000", "10e21", "10000000000000000000000.1"},
	} {
		for _, n := range all {
			if got, err := numeralText(n); err != nil || got != want {
				t.Errorf("numeralText(%s) = %q, %v; want %s", n, got, err, want)
			}
		}
	}
	for _, n := range []string{"1e999", "-1e309", strings.Repeat("1", 65)} {
		if got, err := numeralText(n); !errors.Is(err, ErrInvalid) {
			t.Errorf("numeralText(%s) = %q, %v; want ErrInvalid", n, got, err)
		}
	}
}

func FuzzNumeral(f *testing.F) {
	for _, n := range []string{"0", "-1.5e3", "1e23", "123456789012345678901234567890", "5e-324", "1.7976931348623157e308"} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, n string) {
		var number json.Number
		if d := json.NewDecoder(strings.NewReader(n)); n == "" || strings.TrimSpace(n) != n || n[0] == '"' || d.Decode(&number) != nil || d.More() || number.String() != n {
			return
		}
		got, err := numeralText(n)
		if err != nil {
			return
		}
		if again, err := numeralText(got); err != nil || again != got {
			t.Fatalf("numeralText(%s) = %s, and of that %s, %v", n, got, again, err)
		}
		want, _ := strconv.ParseFloat(n, 64)
		if f, err := strconv.ParseFloat(got, 64); err != nil || f != want {
			t.Fatalf("numeralText(%s) = %s, which is another number", n, got)
		}
	})
}

// oracle is what encoding/json makes of a document, and whether no other
// parser could make anything else of it.
func oracle(doc []byte) (name string, value any, ok bool) {
	d := jsontext.NewDecoder(bytes.NewReader(doc)) // only to tell ambiguous documents
	for {
		if t, err := d.ReadToken(); err == io.EOF {
			break
		} else if err != nil || d.StackDepth() > maxDepth || t.Kind() == '"' && names(d) && strings.EqualFold(t.String(), "phone") && t.String() != "phone" {
			return "", nil, false
		}
	}
	var all map[string]any
	decoder := json.NewDecoder(bytes.NewReader(doc))
	decoder.UseNumber()
	if decoder.Decode(&all) != nil || decoder.More() || all == nil {
		return "", nil, false
	}
	value, ok = all["phone"]
	return "phone", value, ok
}

// names reports whether d has just read the name of a member of the whole.
func names(d *jsontext.Decoder) bool {
	kind, n := d.StackIndex(d.StackDepth())
	return d.StackDepth() == 1 && kind == '{' && n%2 == 1
}

func FuzzJSON(f *testing.F) {
	for _, doc := range []string{
		`{"phone":"1"}`, `{"a":{"phone":2},"phone":"1"}`, `{"phone":1.50}`, `{"phone":null}`, `{"phone":[1]}`, `{"phone":"\u00e4\ud83d\ude00"}`,
		`{"phone":"1"}x`, `{"phone":"1","phone":"2"}`, `{"Phone":"2"}`, "{\"phone\":\"\xff\"}", `[1]`, `{"phone":true,"x":[{},[]]}`,
		`{"x":{"phoNe":0},"phone":"PHONE"}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		var v Value
		got, err := v.lookup(doc, "/phone")
		_, want, ok := oracle(doc)
		if !ok {
			if err == nil && got.text != "" {
				t.Fatalf("lookup(%q) = %+v; want an error, or nothing", doc, got)
			}
			return
		}
		switch want := want.(type) {
		case string:
			if err != nil || got.text != want || got.kind != 0 {
				t.Fatalf("lookup(%q) = %+v, %v; want the string %q", doc, got, err, want)
			}
		case json.Number:
			if err != nil || got.text != want.String() || got.kind != jsontext.KindNumber {
				t.Fatalf("lookup(%q) = %+v, %v; want the number %s", doc, got, err, want)
			}
		case bool:
			if err != nil || got.text != strconv.FormatBool(want) || (got.kind != jsontext.KindTrue && got.kind != jsontext.KindFalse) {
				t.Fatalf("lookup(%q) = %+v, %v; want %v", doc, got, err, want)
			}
		case nil:
			if err != nil || got.text != "null" || got.kind != jsontext.KindNull {
				t.Fatalf("lookup(%q) = %+v, %v; want null", doc, got, err)
			}
		default:
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("lookup(%q) = %+v, %v; want ErrInvalid", doc, got, err)
			}
		}
	})
}

// document is some 0.8 kB, with what is looked for at its end.
func document() []byte {
	return []byte(`{"id":1,"items":[` + strings.TrimSuffix(strings.Repeat(`{"a":"xxxxxxxxxxxxxxxx","b":[1,2,3]},`, 20), ",") + `],"user":{"name":"x","phone":"+8613800138000"}}`)
}
