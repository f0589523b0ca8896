package admin

import (
	"cmp"
	"context"
)

// A Role is the set of operations that an operator may use.
type Role string

// The roles.
const (
	Read  Role = "read"  // read, and evaluate without changes
	Write Role = "write" // also change
)

// A Token authenticates an operator.
type Token struct {
	Name string // of the operator, for the audit trail
	Text string // a secret
	Role Role
}

// An Operator is the sender of a request to the admin API.
type Operator struct {
	Name    string // the name of the token; Local without one
	Address string // remote address of the connection, HOST:PORT
	Role    Role
}

// Local is the name of operators on this machine if no tokens are configured, and Admin the name of
// the operator with Options.Token.
const (
	Local = "local"
	Admin = "admin"
)

// operatorKey is the context key of the operator.
type operatorKey struct{}

// WithOperator returns ctx with the operator o.
func WithOperator(ctx context.Context, o Operator) context.Context {
	return context.WithValue(ctx, operatorKey{}, o)
}

// OperatorOf returns the operator of ctx, or Local.
func OperatorOf(ctx context.Context) Operator {
	o, _ := ctx.Value(operatorKey{}).(Operator)
	o.Name = cmp.Or(o.Name, Local)
	return o
}
