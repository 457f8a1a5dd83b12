import SwiftUI

@main
struct LiteRtApp: App {
    private let model = Result<any Model, any Error> { try LiteRtModel(file: modelFile("model.tflite")) }

    var body: some Scene {
        WindowGroup { ModelScreen(model: model) }
    }
}
