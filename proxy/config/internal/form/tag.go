package form

import (
	"reflect"
	"strconv"
	"strings"
)

// A Tag is what a field of a form may be, as its struct tag says.
type Tag struct {
	required bool
	Enum     []string
	Default  *string // nil for none
	min, max int     // of a number; 0 and 0 mean any
	hidden   string  // what is shown instead of a secret, with {name} for the field Name beside it; "" if it is none
	single   bool    // a list of one is written without brackets
}

// TagOf reads the tag of f, a field of a form. Words that only the JSON Schema needs
// are left to it.
func TagOf(f reflect.StructField) Tag {
	t := Tag{hidden: f.Tag.Get("hidden"), single: strings.HasSuffix(f.Tag.Get("yaml"), ",single")}
	if t.hidden == "true" {
		t.hidden = "(hidden by weir check --effective)"
	}
	for word := range strings.SplitSeq(f.Tag.Get("jsonschema"), ",") {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "required":
			t.required = true
		case "enum":
			t.Enum = append(t.Enum, value)
		case "default":
			t.Default = &value
		case "minimum":
			t.min, _ = strconv.Atoi(value)
		case "maximum":
			t.max, _ = strconv.Atoi(value)
		}
	}
	return t
}

// FieldName is what f is called in YAML; "" if it does not stand there.
func FieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return strings.TrimPrefix(name, "-")
}

// FieldNames are the names of the fields of t, in their order.
func FieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		if name := FieldName(t.Field(i)); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// FieldIndex finds a field of t, which may be nil, by its name in YAML.
func FieldIndex(t reflect.Type, name string) (int, bool) {
	for i := 0; t != nil && i < t.NumField(); i++ {
		if name != "" && FieldName(t.Field(i)) == name {
			return i, true
		}
	}
	return 0, false
}

// IsHidden reports whether f holds secrets.
func IsHidden(f reflect.StructField) bool { return f.Tag.Get("hidden") != "" }

// Field returns the pointer to a field of a form, a pointer to a struct, by its name in YAML.
func Field(form any, name string) any {
	v := reflect.ValueOf(form).Elem()
	index, _ := FieldIndex(v.Type(), name)
	return v.Field(index).Addr().Interface()
}
