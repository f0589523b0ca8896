package config

// A FormBesideQuery says what becomes of a form in the body of a request of which
// something is read from the query.
type FormBesideQuery string

// What can become of it.
const (
	RefuseForm FormBesideQuery = "refuse" // 400: some servers find there what belongs in the query
	IgnoreForm FormBesideQuery = "ignore" // the upstream does not look for it there
)
