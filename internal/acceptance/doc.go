// Package acceptance holds no code, only tests: they build the binary, start it the way the README says, talk to it over
// HTTP, kill it with SIGKILL, and look at what the database then believes.
package acceptance
