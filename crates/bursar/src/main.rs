fn main() -> std::process::ExitCode {
    bursar::run()
}
