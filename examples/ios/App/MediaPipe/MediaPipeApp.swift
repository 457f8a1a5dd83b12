import SwiftUI

@main
struct MediaPipeApp: App {
    private let model = Result<any Model, any Error> { try MediaPipeModel(file: modelFile("mediapipe.tflite")) }

    var body: some Scene {
        WindowGroup { ModelScreen(model: model) }
    }
}
