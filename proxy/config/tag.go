package config

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/limiter"
)

// A tag is what a field of a form may be, as its struct tag says.
type tag struct {
	required bool
	enum     []string
	standard *string // the default
	min, max int     // of a number; 0 and 0 mean any
}

// tagOf reads the tag of f, a field of a form. Words that only the JSON Schema needs
// are left to it.
func tagOf(f reflect.StructField) tag {
	var t tag
	for word := range strings.SplitSeq(f.Tag.Get("jsonschema"), ",") {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "required":
			t.required = true
		case "enum":
			t.enum = append(t.enum, value)
		case "default":
			t.standard = &value
		case "minimum":
			t.min, _ = strconv.Atoi(value)
		case "maximum":
			t.max, _ = strconv.Atoi(value)
		}
	}
	return t
}

// setDefault sets v to the default written in its tag.
func setDefault(v reflect.Value, text string) {
	switch v.Interface().(type) {
	case duration:
		d, _ := limiter.ParseDuration(text)
		v.SetInt(int64(d))
		return
	case size:
		n, _ := parseSize(text)
		v.SetInt(int64(n))
		return
	case list:
		v.Set(reflect.ValueOf(list{text}))
		return
	}
	switch v.Kind() {
	case reflect.Int:
		n, _ := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
	case reflect.Bool:
		v.SetBool(text == "true")
	case reflect.String:
		v.SetString(text)
	}
}

// fieldName is what f is called in YAML; "" if it does not stand there.
func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return strings.TrimPrefix(name, "-")
}

// fieldNames are the names of the fields of t, in their order.
func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		if name := fieldName(t.Field(i)); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// fieldIndex finds a field of t by its name in YAML.
func fieldIndex(t reflect.Type, name string) (int, bool) {
	for i := range t.NumField() {
		if name != "" && fieldName(t.Field(i)) == name {
			return i, true
		}
	}
	return 0, false
}
