package admin

import (
	"cmp"
	"context"
)

// A Role is the role of an operator.
type Role string

// The roles.
const (
	Read  Role = "read"  // view and explain
	Write Role = "write" // make changes as well
)

// A Token is the bearer token of an operator.
type Token struct {
	Name string // of the operator, for the audit trail
	Text string // a secret
	Role Role
}

// An Operator identifies the sender of a request.
type Operator struct {
	Name    string // of a token; Local without one
	Address string // remote address, HOST:PORT
	Role    Role
}

// Local is the name of operators on this machine without a token, and Admin that of those
// with Options.Token.
const (
	Local = "local"
	Admin = "admin"
)

// operatorKey is the context key of the operator.
type operatorKey struct{}

// WithOperator returns ctx with operator o.
func WithOperator(ctx context.Context, o Operator) context.Context {
	return context.WithValue(ctx, operatorKey{}, o)
}

// OperatorOf returns the operator in ctx; Local if there is none.
func OperatorOf(ctx context.Context) Operator {
	o, _ := ctx.Value(operatorKey{}).(Operator)
	o.Name = cmp.Or(o.Name, Local)
	return o
}
